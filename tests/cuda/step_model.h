// A model with random weights on the first device, and whole steps of it. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "engine/batch.h"
#include "engine/draw.h"
#include "engine/transformer.h"
#include "tests/cuda/random_model.h"

namespace batchmill {
class CudaBackend;
}

namespace batchmill::testing {

inline constexpr std::int32_t kStepBlockTokens = 16;

struct StepOptions {
  bool records = true;  // decode steps are recorded and replayed; else every step's work is sent
  bool downloads = true;  // logits come to the host; else they stay and are only waited for
  bool draws = false;  // greedy tokens come to the host, and no logits
};

class StepModel {
 public:
  StepModel(const ModelShape& shape, std::int32_t num_blocks, std::int32_t max_context_tokens,
            DType kv = DType::kBF16);
  ~StepModel();

  Transformer& transformer() { return *transformer_; }
  const ModelConfig& config() const { return config_; }
  std::int64_t num_replayed_steps() const;
  std::int64_t num_failed_recordings() const;
  std::int64_t num_shared_keys() const;
  void limit_partial_rows(std::int32_t rows);
  void set_options(const StepOptions& options);
  // Of the last run, if tokens were drawn.
  const std::vector<Draw>& drawn() const { return drawn_; }
  // Of matrices that a decode step reads.
  std::int64_t weight_bytes() const;
  // Of the cache, for so many tokens.
  double kv_bytes(double tokens) const;

  // Logits of the batch's rows, [R][vocab], until the next call; empty if tokens are drawn.
  std::vector<float>& run(const Batch& batch);

  // Begins a step that draws greedy tokens; waits for the oldest one's. At most two are under way.
  void begin(const Batch& batch);
  const std::vector<Draw>& end();

 private:
  class Probe;
  ModelConfig config_;
  DType kv_;
  Probe* probe_;  // of transformer_
  CudaBackend* backend_;  // of probe_
  std::unique_ptr<Transformer> transformer_;
  std::vector<float> logits_;
  SamplingParams greedy_;
  std::deque<std::vector<Draw>> under_way_;
  std::vector<Draw> drawn_;
};

// A sequence that has room for all its tokens in blocks of its own.
struct StepSequence {
  std::vector<TokenId> tokens;
  std::vector<BlockId> blocks;
  std::int32_t num_computed = 0;
};

// Blocks are given out far from each other.
std::vector<StepSequence> make_sequences(const std::vector<std::int32_t>& room_tokens,
                                         std::int32_t num_blocks);

// Adds the next `rows` tokens of a sequence to a batch, with logits of the last row, and counts
// them as computed.
void add_rows(StepSequence* sequence, std::int32_t rows, Batch* batch);

// Adds a row whose token is what a draw of the step before chooses; `sequence` need not have it.
void add_drawn_row(StepSequence* sequence, std::int32_t draw, Batch* batch);

// Begins a batch whose block tables have so many columns.
Batch begin_batch(std::int32_t max_blocks);

}  // namespace batchmill::testing
