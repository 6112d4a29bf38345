// A fast device without a model. Its "KV cache" holds, per slot, the token and a digest of all KV
// content that the row could see; its logits are a function of the digest read back through the
// block table. So a block that is shared, copied, evicted or rolled back wrongly changes the
// output. It checks every Batch against the contract in engine/batch.h and throws std::logic_error
// where it is broken. Not thread-safe, like every ModelRunner.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/model_runner.h"
#include "engine/sampler.h"

namespace batchmill::testing {

// The failure that a test injects.
class InjectedFailure : public std::runtime_error {
 public:
  InjectedFailure() : std::runtime_error("injected device failure") {}
};

struct ScriptedRunnerOptions {
  std::int32_t vocab_size = 64;
  std::int32_t block_size_tokens = 4;
  std::int32_t num_blocks = 64;
  // Steps of more rows find no memory: std::bad_alloc.
  std::int32_t max_rows = INT32_MAX;

  // If set: the token to prefer after this context (read from the KV cache). Greedy choices follow
  // it exactly; draws nearly always.
  std::function<TokenId(std::span<const TokenId> context)> script = nullptr;

  // Whether it draws tokens by itself. Logits of other rows than the host's are nowhere to be seen.
  bool draws_tokens = false;

  // A step that is begun is computed at once, as by a device that is much faster than its host;
  // else when somebody waits for it.
  bool is_eager = false;

  // If set: called before each step is computed with its number, from 0. May block or throw; when
  // it throws, the slots that the step would have written hold garbage, as on a real device.
  std::function<void(std::int64_t step)> before_step = nullptr;
};

class ScriptedRunner : public ModelRunner {
 public:
  explicit ScriptedRunner(ScriptedRunnerOptions options);

  std::int32_t vocab_size() const override { return options_.vocab_size; }
  std::int32_t block_size_tokens() const override { return options_.block_size_tokens; }
  std::int32_t num_blocks() const override { return options_.num_blocks; }
  void forward(const Batch& batch, std::span<float> logits) override;
  bool draws_tokens() const override { return options_.draws_tokens; }
  void begin(const Batch& batch, std::span<const Draw> draws) override;
  void end(std::span<Draw> draws, std::span<const std::int32_t> host_rows,
           std::span<float> logits) override;
  void drop_steps() noexcept override;

  std::int64_t num_steps() const { return num_steps_; }
  std::int64_t num_rows() const { return num_rows_; }  // of steps that somebody waited for
  // Steps that were begun before what the step before drew was read.
  std::int64_t num_steps_ahead() const { return num_steps_ahead_; }
  std::int32_t num_under_way() const { return static_cast<std::int32_t>(under_way_.size()); }
  std::int64_t num_copies() const { return num_copies_; }
  std::int64_t num_draws() const { return num_draws_; }
  std::int64_t num_host_rows() const { return num_host_rows_; }  // logits that the host asked for
  // Most sequences that one step held.
  std::int32_t widest_step() const { return widest_step_; }

 private:
  struct Slot {
    TokenId token = kNoToken;  // kNoToken: never written, or garbage
    std::uint64_t digest = 0;
  };

  // A draw's context as it was when its step was begun: the engine's own goes on changing.
  struct OwnDraw {
    SamplingParams params;
    std::vector<TokenId> eos_token_ids;
    std::vector<TokenId> prompt;
    std::vector<TokenId> generated;
    std::int32_t choice = 0;
    std::int32_t logits_row = 0;
    TokenId token = kNoToken;
  };
  struct Step {
    Batch batch;
    std::vector<OwnDraw> draws;
    std::vector<float> logits;  // [logits rows, vocab]
    bool is_computed = false;
  };

  void check_draws(const Step& step) const;
  void compute(Step* step);
  void fill_in_drawn(Step* step) const;
  void check(const Batch& batch) const;
  void check_copies(const Batch& batch) const;
  void spoil(const Batch& batch);
  void copy_blocks(const Batch& batch);
  void run_sequence(const Batch& batch, std::size_t index, std::size_t* next_logits_row,
                    std::span<float> logits);
  void write_logits(std::uint64_t digest, std::span<const TokenId> context,
                    std::span<float> row) const;

  ScriptedRunnerOptions options_;
  std::vector<Slot> slots_;  // [num_blocks, block_size]
  std::vector<TokenId> context_;
  Sampler sampler_;
  std::deque<Step> under_way_;
  std::vector<TokenId> drawn_;  // by the step computed last
  bool has_failed_ = false;  // and nobody has dropped the steps under way
  std::int64_t num_draws_ = 0;
  std::int64_t num_host_rows_ = 0;
  // Asked for by tests while the device thread runs.
  std::atomic<std::int64_t> num_steps_ = 0;
  std::atomic<std::int64_t> num_steps_ahead_ = 0;
  std::atomic<std::int64_t> num_rows_ = 0;
  std::int64_t num_copies_ = 0;
  std::int32_t widest_step_ = 0;
};

}  // namespace batchmill::testing
