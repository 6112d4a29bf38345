#include "tools/quality.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "engine/batch.h"
#include "engine/tokenizer.h"

namespace batchmill {
namespace {

constexpr std::int32_t kWindowTokens = 1024;
constexpr std::int32_t kRowsPerStep = 128;
constexpr std::size_t kMostTokens = 12'288;  // a vocabulary of bytes makes 42,000

// What one path says about each predicted token.
struct Predictions {
  double logprob_sum = 0.0;
  std::vector<std::int32_t> best;
};

// Rows [begin, end) of a sequence over the blocks 0, 1, 2, ….
Batch make_batch(const std::vector<TokenId>& tokens, std::int32_t begin, std::int32_t end,
                 std::int32_t block_size) {
  Batch batch;
  batch.cu_seqlens = {0, end - begin};
  batch.context_lens = {end};
  batch.max_blocks = (end + block_size - 1) / block_size;
  batch.block_tables.resize(static_cast<std::size_t>(batch.max_blocks));
  std::iota(batch.block_tables.begin(), batch.block_tables.end(), 0);
  for (std::int32_t i = begin; i < end; ++i) {
    batch.token_ids.push_back(tokens[static_cast<std::size_t>(i)]);
    batch.positions.push_back(i);
    batch.slot_mapping.push_back(i);
    batch.logits_rows.push_back(i - begin);
  }
  return batch;
}

void add_prediction(const float* logits, std::size_t count, TokenId next, Predictions* result) {
  const float* best = std::max_element(logits, logits + count);
  double sum = 0.0;
  for (std::size_t i = 0; i < count; ++i) sum += std::exp(static_cast<double>(logits[i] - *best));
  result->logprob_sum += static_cast<double>(logits[next] - *best) - std::log(sum);
  result->best.push_back(static_cast<std::int32_t>(best - logits));
}

Predictions predict(ModelRunner* runner, const std::vector<std::vector<TokenId>>& windows) {
  Predictions result;
  const auto vocabulary = static_cast<std::size_t>(runner->vocab_size());
  std::vector<float> logits(kRowsPerStep * vocabulary);
  for (const std::vector<TokenId>& tokens : windows) {
    // The last token is predicted, but predicts nothing.
    const auto count = static_cast<std::int32_t>(tokens.size()) - 1;
    for (std::int32_t begin = 0; begin < count; begin += kRowsPerStep) {
      const std::int32_t end = std::min(count, begin + kRowsPerStep);
      runner->forward(make_batch(tokens, begin, end, runner->block_size_tokens()), logits);
      for (std::int32_t i = begin; i < end; ++i) {
        add_prediction(logits.data() + static_cast<std::size_t>(i - begin) * vocabulary, vocabulary,
                       tokens[static_cast<std::size_t>(i) + 1], &result);
      }
    }
  }
  return result;
}

std::vector<std::vector<TokenId>> cut(const std::vector<TokenId>& tokens, std::int32_t window) {
  std::vector<std::vector<TokenId>> windows;
  const auto width = static_cast<std::size_t>(window);
  for (std::size_t begin = 0; begin + 1 < tokens.size(); begin += width) {
    const std::size_t end = std::min(tokens.size(), begin + width);
    windows.emplace_back(tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                         tokens.begin() + static_cast<std::ptrdiff_t>(end));
  }
  if (windows.back().size() < 2) windows.pop_back();
  return windows;
}

std::vector<CpuOptions> paths(const ModelConfig& config, const CpuOptions& in_use) {
  std::vector<CpuOptions> all;
  const auto add = [&](CpuDType dtype, CpuDType kv_dtype) {
    CpuOptions options = in_use;
    options.dtype = dtype;
    options.kv_dtype = kv_dtype;
    const CpuPlan plan = plan_cpu(config, options);
    const bool known = std::any_of(all.begin(), all.end(), [&](const CpuOptions& other) {
      const CpuPlan earlier = plan_cpu(config, other);
      return earlier.dtype == plan.dtype && earlier.kv_dtype == plan.kv_dtype;
    });
    if (!known) all.push_back(options);
  };
  add(CpuDType::kF32, CpuDType::kF32);
  add(CpuDType::kBF16, CpuDType::kBF16);
  const CpuPlan plan = plan_cpu(config, in_use);
  if (plan.kv_dtype == DType::kI8) {
    add(in_use.dtype, plan.activation_dtype == DType::kBF16 ? CpuDType::kBF16 : CpuDType::kF32);
  }
  add(in_use.dtype, in_use.kv_dtype);
  return all;
}

}  // namespace

QualityReport measure_quality(const Model& model, const CpuOptions& options) {
  if (model.tokenizer() == nullptr) {
    throw std::runtime_error("the model has no tokenizer, so there is no text to predict");
  }
  QualityReport report;
  report.window_tokens = std::min(kWindowTokens, model.config().max_context_tokens);
  std::vector<TokenId> tokens = model.tokenizer()->encode(kQualityText, false);
  tokens.resize(std::min(tokens.size(), kMostTokens));
  const auto windows = cut(tokens, report.window_tokens);
  for (const auto& window : windows) {
    report.num_tokens += static_cast<std::int64_t>(window.size()) - 1;
  }
  std::vector<std::int32_t> reference;
  for (CpuOptions path : paths(model.config(), options)) {
    path.num_blocks = report.window_tokens / path.block_size_tokens + 1;
    const auto runner = make_cpu_runner(model, path);
    const Predictions predictions = predict(runner.get(), windows);
    const auto count = static_cast<double>(report.num_tokens);
    if (reference.empty()) reference = predictions.best;
    std::int64_t equal = 0;
    for (std::size_t i = 0; i < reference.size(); ++i) {
      equal += predictions.best[i] == reference[i] ? 1 : 0;
    }
    report.runs.push_back({plan_cpu(model.config(), path), runner->describe(),
                           std::exp(-predictions.logprob_sum / count),
                           static_cast<double>(equal) / count});
  }
  return report;
}

}  // namespace batchmill
