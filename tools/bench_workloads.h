// The seeded workloads of `batchmill bench`: a model on the CPU backend with a stopwatch between
// the two. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/cpu_runner.h"
#include "engine/model.h"
#include "engine/options.h"
#include "engine/transformer.h"
#include "tools/timing_backend.h"

namespace batchmill {

inline constexpr std::uint32_t kBenchSeed = 20'250'101;

struct BenchFlags {
  bool quality = false;
  int runs = 5;
  int prefill_prompts = 4;
  int prefill_tokens = 512;
  int decode_sequences = 64;
  int decode_prompt_tokens = 128;
  int decode_tokens = 32;
};

// What one kind of step cost in one run.
struct Measured {
  double seconds = 0.0;
  std::int64_t tokens = 0;
  BackendSums sums;
};

// The measured runs of each workload.
struct Workloads {
  std::vector<Measured> prefill;
  std::vector<Measured> decode;
  std::vector<Measured> shared_decode;  // prompts alike but for their last tokens
};

class BenchModel {
 public:
  // `model` must outlive it. Throws std::runtime_error, std::bad_alloc.
  BenchModel(const Model& model, const CpuOptions& options, const EngineOptions& engine_options,
             std::int32_t num_blocks);

  // Runs each workload once and adds what it cost to `workloads`, unless that is null. Throws
  // ToolError if the tokens differ from those of the round before.
  void run_round(const BenchFlags& flags, Workloads* workloads);

  const CpuPlan& plan() const { return plan_; }
  std::vector<std::string> gemm_implementations() const { return cpu_->gemm_implementations(); }
  std::string describe() const { return cpu_->describe(); }

 private:
  // Runs `count` prompts of random ids, of which the first `shared_tokens` are the same in all, to
  // their ends. Steps are told apart by what they hold; a step that mixes both kinds counts for
  // neither. Returns a hash of what was generated.
  std::uint64_t run(int count, int prompt_tokens, int shared_tokens, int max_tokens,
                    Measured* prefill, Measured* decode);

  CpuPlan plan_;
  EngineOptions engine_options_;
  const Model& model_;
  CpuBackend* cpu_ = nullptr;  // the transformer's
  BackendSums sums_;
  std::unique_ptr<Transformer> transformer_;
  std::uint64_t hash_ = 0;  // of the tokens of a round; 0: none yet
};

}  // namespace batchmill
