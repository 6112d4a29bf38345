// Measures how well a model on the CPU backend agrees with outputs of Hugging Face transformers in
// float32 that the reference data hold. For tests and for the table in engine/README.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/cpu/cpu_runner.h"
#include "engine/model_files.h"

namespace batchmill::testing {

// Over all cases of a file of goldens. The reference's tokens are fed, so that one difference does
// not change what follows. Errors and margins are in standard deviations of the logits.
struct Agreement {
  double largest_error = 0;  // of one logit after the prompt's last token
  double mean_rms = 0;  // over the cases, of the same logits
  double flip_margin = 0;  // the largest margin of a best token that differs
  double logprob_error = 0;  // per token of the prompt, the largest of the cases; not in deviations
  std::int64_t num_best = 0;  // best tokens after every token of prompt and greedy continuation
  std::int64_t num_equal = 0;
  std::vector<std::string> products;  // CpuRunner::gemm_implementations()
};

// Throws std::runtime_error if the files do not belong together or a logit is not finite.
Agreement measure_agreement(const ModelFiles& model, const std::string& golden, CpuDType dtype,
                            InstructionSet set = best_instruction_set(),
                            CpuDType kv_dtype = CpuDType::kAuto);

// The same of any runner; `products` stay empty.
Agreement measure_agreement(ModelRunner* runner, const std::string& golden);

}  // namespace batchmill::testing
