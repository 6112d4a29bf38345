#include "tests/engine/golden_agreement.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>

#include "tests/engine/scripted_sequences.h"

namespace batchmill::testing {
namespace {

using nlohmann::json;

// A large vocabulary's logits of a whole prompt would take a gigabyte.
constexpr std::size_t kStepTokens = 64;

std::size_t best_of(std::span<const float> logits) {
  return static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double logprob_of(std::span<const float> logits, TokenId token) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return static_cast<double>(logits[static_cast<std::size_t>(token)]) - largest - std::log(sum);
}

double deviation_of(const std::vector<double>& logits) {
  const auto size = static_cast<double>(logits.size());
  double mean = 0;
  double squares = 0;
  for (const double logit : logits) mean += logit / size;
  for (const double logit : logits) squares += (logit - mean) * (logit - mean);
  return std::sqrt(squares / size);
}

class Comparison {
 public:
  Comparison(const json& golden, Agreement* agreement)
      : agreement_(*agreement),
        prompt_(golden.at("prompt").get<std::vector<TokenId>>()),
        prompt_best_(golden.at("logits_all_argmax").get<std::vector<std::size_t>>()),
        prompt_margins_(golden.at("logits_all_margin").get<std::vector<double>>()),
        greedy_(golden.at("greedy").get<std::vector<TokenId>>()),
        greedy_margins_(golden.at("greedy_margins").get<std::vector<double>>()),
        logprob_sum_(golden.at("logprob_sum").get<double>()) {
    if (golden.contains("logits_last")) {
      expected_ = golden.at("logits_last").get<std::vector<double>>();
      deviation_ = deviation_of(expected_);
    } else {
      ids_ = golden.at("top_ids").get<std::vector<std::size_t>>();
      expected_ = golden.at("top_logits").get<std::vector<double>>();
      deviation_ = golden.at("logits_last_std").get<double>();
    }
  }

  void run(ModelRunner* runner) {
    std::vector<TokenId> tokens = prompt_;
    tokens.insert(tokens.end(), greedy_.begin(), greedy_.end() - 1);
    ScriptedSequences sequences(runner, 5);
    sequences.add(tokens);
    for (std::size_t begin = 0; begin < tokens.size(); begin += kStepTokens) {
      const std::size_t count = std::min(kStepTokens, tokens.size() - begin);
      const auto logits = sequences.step({static_cast<std::int32_t>(count)});
      for (std::size_t i = 0; i < count; ++i) compare_row(begin + i, logits[i]);
    }
    const double error = std::abs(logprobs_ - logprob_sum_) / static_cast<double>(prompt_.size());
    agreement_.logprob_error = std::max(agreement_.logprob_error, error);
  }

 private:
  // Logits after token `at`.
  void compare_row(std::size_t at, std::span<const float> logits) {
    if (!std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); })) {
      throw std::runtime_error("a logit after token " + std::to_string(at) + " is not finite");
    }
    const std::size_t best = best_of(logits);
    if (at + 1 < prompt_.size()) logprobs_ += logprob_of(logits, prompt_[at + 1]);
    if (at < prompt_.size()) compare_best(best, prompt_best_[at], prompt_margins_[at]);
    if (at + 1 == prompt_.size()) compare_logits(logits);
    if (at + 1 >= prompt_.size()) {
      const std::size_t step = at + 1 - prompt_.size();
      compare_best(best, static_cast<std::size_t>(greedy_[step]), greedy_margins_[step]);
    }
  }

  void compare_best(std::size_t best, std::size_t expected, double margin) {
    ++agreement_.num_best;
    agreement_.num_equal += best == expected ? 1 : 0;
    if (best != expected) {
      agreement_.flip_margin = std::max(agreement_.flip_margin, margin / deviation_);
    }
  }

  void compare_logits(std::span<const float> logits) {
    if (ids_.empty() && logits.size() != expected_.size()) {
      throw std::runtime_error("the golden file has " + std::to_string(expected_.size()) +
                               " logits, the model " + std::to_string(logits.size()));
    }
    double squares = 0;
    for (std::size_t i = 0; i < expected_.size(); ++i) {
      const float logit = logits[ids_.empty() ? i : ids_[i]];
      const double error = std::abs(static_cast<double>(logit) - expected_[i]) / deviation_;
      agreement_.largest_error = std::max(agreement_.largest_error, error);
      squares += error * error;
    }
    agreement_.mean_rms += std::sqrt(squares / static_cast<double>(expected_.size()));
  }

  Agreement& agreement_;
  std::vector<TokenId> prompt_;
  std::vector<std::size_t> prompt_best_;
  std::vector<double> prompt_margins_;
  std::vector<TokenId> greedy_;
  std::vector<double> greedy_margins_;
  double logprob_sum_;
  std::vector<std::size_t> ids_;  // of expected_; empty: all
  std::vector<double> expected_;  // after the prompt's last token
  double deviation_ = 1;
  double logprobs_ = 0;
};

}  // namespace

Agreement measure_agreement(const ModelFiles& model, const std::string& golden, CpuDType dtype,
                            InstructionSet set, CpuDType kv_dtype) {
  CpuOptions options;
  options.dtype = dtype;
  options.kv_dtype = kv_dtype;
  // A tiny model's products are done before a second thread has woken up.
  options.threads = model.config.hidden_size < 256 ? 1 : 2;
  options.block_size_tokens = 16;
  options.num_blocks = 128;
  options.instruction_set = set;
  const auto runner = make_cpu_runner(*model.tensors, model.config, options);
  Agreement agreement = measure_agreement(runner.get(), golden);
  agreement.products = runner->gemm_implementations();
  return agreement;
}

Agreement measure_agreement(ModelRunner* runner, const std::string& golden) {
  std::ifstream stream(golden);
  if (!stream) throw std::runtime_error("cannot read " + golden);
  auto cases = json::parse(stream);
  if (cases.is_object()) cases = cases.at("cases");
  Agreement agreement;
  for (const auto& each : cases) Comparison(each, &agreement).run(runner);
  agreement.mean_rms /= static_cast<double>(cases.size());
  return agreement;
}

}  // namespace batchmill::testing
