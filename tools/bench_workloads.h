// The seeded workloads of `batchmill bench`: prompts of random ids through an engine, and what its
// steps cost. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "engine/model_config.h"
#include "engine/model_runner.h"
#include "engine/options.h"
#include "tools/timing_backend.h"

namespace batchmill {

inline constexpr std::uint32_t kBenchSeed = 20'250'101;
inline constexpr int kOwnTokens = 16;  // of a prompt that shares all others

struct BenchFlags {
  bool quality = false;
  int runs = 5;
  int prefill_prompts = 2;
  int prefill_tokens = 900;
  int decode_sequences = 64;
  int decode_prompt_tokens = 900;
  int decode_tokens = 16;
};

// What the steps of one run cost.
struct Measured {
  double seconds = 0.0;
  std::int64_t steps = 0;
  std::int64_t tokens = 0;
  double kv_tokens = 0.0;  // cached tokens that the steps look at; what is shared counts once
  std::int64_t held_slots = 0;  // of the KV cache, by sequences, after the last step …
  std::int64_t empty_slots = 0;  // … of them without a token
  // Known on the CPU alone.
  double forward_seconds = 0.0;  // in the model; the rest is scheduling and sampling
  bool took_times = false;  // of the parts, one after the other: the whole is slower then
  BackendSums sums;
};

// Decoding behind prompts of random ids.
struct DecodeWorkload {
  int sequences = 1;
  int prompt_tokens = 0;
  int shared_tokens = 0;  // leading ids that all prompts have in common
  int tokens = 0;  // steps of a run
};

class BenchModel {
 public:
  BenchModel(const ModelConfig& config, const EngineOptions& engine_options,
             std::unique_ptr<ModelRunner> runner);
  virtual ~BenchModel() = default;

  // Prompts of random ids from their first row to their first token. Throws ToolError if two runs
  // of the same numbers give different tokens.
  Measured prefill(int prompts, int prompt_tokens, bool take_times);
  // Computes the prompts once and then decodes; a first run warms up and is left out. One more run
  // than asked for, the last, takes times.
  std::vector<Measured> decode(const DecodeWorkload& work, int runs);

 protected:
  virtual void before_step(const Measured& /*run*/) {}
  virtual void after_step(Measured* /*run*/) {}

 private:
  void add_prompts(Engine* engine, int count, int prompt_tokens, int shared_tokens,
                   int max_tokens) const;
  // One step; adds what it cost.
  StepOutput& step(Engine* engine, Measured* run);

  std::int32_t vocab_size_;
  EngineOptions engine_options_;
  std::unique_ptr<ModelRunner> runner_;
  std::vector<TokenId> first_tokens_;  // of a prefill; empty: there was none
};

// Everything that is measured of a model with one set of options.
struct Workloads {
  std::vector<Measured> prefill;
  std::vector<Measured> single_decode;
  std::vector<Measured> decode;
  std::vector<Measured> shared_decode;  // prompts alike but for their last tokens
};

DecodeWorkload shared_work(const BenchFlags& flags);
std::vector<Measured> measure_prefill(BenchModel* model, const BenchFlags& flags, int runs);
Workloads measure(BenchModel* model, const BenchFlags& flags);

// Room in the cache for the largest workload, with what admission keeps free.
std::int32_t blocks_needed(const BenchFlags& flags, const EngineOptions& options,
                           std::int32_t block_size_tokens);
// Makes the workloads short enough for a model's context.
void fit_to_context(BenchFlags* flags, std::int32_t context_tokens);

}  // namespace batchmill
