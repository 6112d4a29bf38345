#include "tests/cuda/step_golden.h"

#include <algorithm>

#include "tests/cuda/step_model.h"

namespace batchmill::testing {
namespace {

constexpr std::array<std::int32_t, kGoldenSequences> kPromptTokens = {1, 20, 70, 300};

constexpr GoldenModel kModels[] = {
#include "tests/cuda/step_golden.inc"
};

StepResult result_of(std::span<const float> logits, TokenId golden) {
  const auto best = std::max_element(logits.begin(), logits.end());
  float second = logits[best == logits.begin() ? 1 : 0];
  for (auto it = logits.begin(); it != logits.end(); ++it) {
    if (it != best) second = std::max(second, *it);
  }
  const auto token = static_cast<TokenId>(best - logits.begin());
  return {{token, *best, *best - second}, logits[static_cast<std::size_t>(golden)]};
}

}  // namespace

std::span<const GoldenModel> golden_models() { return kModels; }

std::array<std::array<StepResult, kGoldenTokens>, kGoldenSequences> run_golden(
    const GoldenModel& model, std::int32_t chunk, const StepRunner& step) {
  std::array<std::array<StepResult, kGoldenTokens>, kGoldenSequences> results{};
  std::array<std::size_t, kGoldenSequences> num_results{};
  std::vector<std::int32_t> rooms;
  for (const std::int32_t length : kPromptTokens) {
    rooms.push_back(length + static_cast<std::int32_t>(kGoldenTokens));
  }
  std::vector<StepSequence> sequences = make_sequences(rooms, kGoldenBlocks);
  for (std::size_t s = 0; s < kGoldenSequences; ++s) {
    for (std::int32_t i = 0; i < rooms[s]; ++i) {
      const auto token = (i * 37 + static_cast<std::int32_t>(s) * 11 + i * i) % model.shape.vocab;
      sequences[s].tokens.push_back(token);
    }
  }
  const auto is_done = [](std::size_t count) { return count == kGoldenTokens; };
  while (!std::all_of(num_results.begin(), num_results.end(), is_done)) {
    Batch batch = begin_batch(kGoldenContextTokens / kStepBlockTokens);
    std::vector<std::size_t> order;
    for (std::size_t s = 0; s < kGoldenSequences; ++s) {
      if (is_done(num_results[s])) continue;
      const std::int32_t left = kPromptTokens[s] - sequences[s].num_computed;
      add_rows(&sequences[s], std::clamp(left, 1, chunk), &batch);
      order.push_back(s);
    }
    const std::vector<float>& logits = step(batch);
    const auto vocab = static_cast<std::size_t>(model.shape.vocab);
    for (std::size_t i = 0; i < order.size(); ++i) {
      StepSequence& sequence = sequences[order[i]];
      if (sequence.num_computed < kPromptTokens[order[i]]) continue;
      const std::size_t t = num_results[order[i]]++;
      const TokenId golden = model.sequences[order[i]][t].token;
      results[order[i]][t] = result_of(std::span(logits).subspan(i * vocab, vocab), golden);
    }
  }
  return results;
}

}  // namespace batchmill::testing
