// The seeded workloads of `batchmill bench`: a model on the CPU backend with stopwatches between
// engine, model and backend. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/cpu_runner.h"
#include "engine/engine.h"
#include "engine/model.h"
#include "engine/options.h"
#include "engine/transformer.h"
#include "tools/timing_backend.h"

namespace batchmill {

inline constexpr std::uint32_t kBenchSeed = 20'250'101;

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
  double forward_seconds = 0.0;  // of them, in the model; the rest is scheduling and sampling
  std::int64_t steps = 0;
  std::int64_t tokens = 0;
  bool took_times = false;  // of the parts, one after the other: the whole is slower then
  double kv_tokens = 0.0;  // cached tokens that the steps look at; what is shared counts once
  std::int64_t held_slots = 0;  // of the KV cache, by sequences, after the last step …
  std::int64_t empty_slots = 0;  // … of them without a token
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
  // `model` must outlive it. Throws std::runtime_error, std::bad_alloc.
  BenchModel(const Model& model, const CpuOptions& options, const EngineOptions& engine_options,
             std::int32_t num_blocks);

  // Prompts of random ids from their first row to their first token. Throws ToolError if two runs
  // of the same numbers give different tokens.
  Measured prefill(int prompts, int prompt_tokens, bool take_times);
  // Computes the prompts once and then decodes; a first run warms up and is left out. One more run
  // than asked for, the last, takes times.
  std::vector<Measured> decode(const DecodeWorkload& work, int runs);

  const CpuPlan& plan() const { return plan_; }
  std::vector<std::string> gemm_implementations() const { return cpu_->gemm_implementations(); }
  std::string describe() const { return cpu_->describe(); }

 private:
  // The model as the engine sees it, with a stopwatch.
  class TimedRunner : public ModelRunner {
   public:
    explicit TimedRunner(std::unique_ptr<Transformer> transformer)
        : transformer_(std::move(transformer)) {}
    std::int32_t vocab_size() const override { return transformer_->vocab_size(); }
    std::int32_t block_size_tokens() const override { return transformer_->block_size_tokens(); }
    std::int32_t num_blocks() const override { return transformer_->num_blocks(); }
    void forward(const Batch& batch, std::span<float> logits) override;
    LogitsScan* logits_scan() override { return transformer_->logits_scan(); }

    double seconds = 0.0;
    double context_tokens = 0.0;  // Σ of the step's sequences

   private:
    std::unique_ptr<Transformer> transformer_;
  };

  void add_prompts(Engine* engine, int count, int prompt_tokens, int shared_tokens,
                   int max_tokens) const;
  // One step; adds what it cost.
  StepOutput& step(Engine* engine, Measured* measured);

  CpuPlan plan_;
  EngineOptions engine_options_;
  const Model& model_;
  CpuBackend* cpu_ = nullptr;  // the transformer's
  BackendSums sums_;
  std::unique_ptr<TimedRunner> runner_;
  std::vector<TokenId> first_tokens_;  // of a prefill; empty: there was none
};

}  // namespace batchmill
