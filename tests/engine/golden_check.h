// Compares a model on the CPU backend with outputs of Hugging Face transformers in float32.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/cpu/cpu_runner.h"
#include "engine/model_files.h"
#include "tests/engine/scripted_sequences.h"

namespace batchmill::testing {

// Errors in units of the logits' standard deviation; margins too.
struct Tolerance {
  double each_logit = 0;
  double mean_rms = 0;
  double margin = 0;  // a best token with less may differ
  double agreement = 1;  // share of best tokens that are equal
  double logprob = 0;  // per token, not in units
};

inline constexpr Tolerance kF32{0.001, 0.0002, 0.0, 1.0, 0.001};
inline constexpr Tolerance kTinyBf16{0.4, 0.05, 0.2, 0.95, 0.05};
inline constexpr Tolerance kRealBf16{0.25, 0.03, 0.05, 0.98, 0.03};
inline constexpr Tolerance kRealInt8{0.3, 0.3, 0.15, 0.95, 0.06};

inline std::size_t best_of(const std::vector<float>& logits) {
  return static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

inline double logprob_of(const std::vector<float>& logits, TokenId token) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return static_cast<double>(logits[static_cast<std::size_t>(token)]) - largest - std::log(sum);
}

inline double deviation_of(const std::vector<double>& logits) {
  double mean = 0;
  double squares = 0;
  for (const double logit : logits) mean += logit / static_cast<double>(logits.size());
  for (const double logit : logits) squares += (logit - mean) * (logit - mean);
  return std::sqrt(squares / static_cast<double>(logits.size()));
}

// Compares all cases of a golden file; the greedy tokens are fed, so that one difference does not
// change what follows.
class GoldenCheck {
 public:
  GoldenCheck(ModelRunner* runner, const Tolerance& tolerance)
      : runner_(*runner), tolerance_(tolerance) {}

  void check(const nlohmann::json& golden) {
    const auto prompt = golden["prompt"].get<std::vector<TokenId>>();
    const auto greedy = golden["greedy"].get<std::vector<TokenId>>();
    SCOPED_TRACE("prompt of " + std::to_string(prompt.size()) + " tokens");
    std::vector<TokenId> tokens = prompt;
    tokens.insert(tokens.end(), greedy.begin(), greedy.end() - 1);
    ScriptedSequences sequences(&runner_, 5);
    sequences.add(tokens);
    const auto logits = sequences.step({static_cast<std::int32_t>(tokens.size())});

    const auto& last = logits[prompt.size() - 1];
    if (golden.contains("logits_last")) {
      const auto expected = golden["logits_last"].get<std::vector<double>>();
      compare_logits(last, expected, deviation_of(expected));
    } else {
      const auto ids = golden["top_ids"].get<std::vector<std::size_t>>();
      std::vector<float> top;
      for (const std::size_t id : ids) top.push_back(last[id]);
      compare_logits(top, golden["top_logits"].get<std::vector<double>>(),
                     golden["logits_last_std"].get<double>());
    }
    compare_best(logits, 0, golden["logits_all_argmax"].get<std::vector<std::size_t>>(),
                 golden["logits_all_margin"].get<std::vector<double>>());
    compare_best(logits, prompt.size() - 1, golden["greedy"].get<std::vector<std::size_t>>(),
                 golden["greedy_margins"].get<std::vector<double>>());
    double sum = 0;
    for (std::size_t i = 1; i < prompt.size(); ++i) sum += logprob_of(logits[i - 1], prompt[i]);
    const double error = std::abs(sum - golden["logprob_sum"].get<double>());
    EXPECT_LE(error, tolerance_.logprob * static_cast<double>(prompt.size()));
  }

  // Once all cases are checked.
  void finish() const {
    EXPECT_GE(static_cast<double>(num_equal_),
              tolerance_.agreement * static_cast<double>(num_best_))
        << num_equal_ << " of " << num_best_;
    ::testing::Test::RecordProperty("largest_error_std", std::to_string(largest_error_));
    std::cout << "largest logit error " << largest_error_ << " std, best tokens equal "
              << num_equal_ << " of " << num_best_ << "\n";
  }

 private:
  void compare_logits(const std::vector<float>& actual, const std::vector<double>& expected,
                      double deviation) {
    deviation_ = deviation;
    ASSERT_EQ(actual.size(), expected.size());
    double squares = 0;
    double worst = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double error = std::abs(static_cast<double>(actual[i]) - expected[i]) / deviation;
      ASSERT_TRUE(std::isfinite(error)) << "logit " << i;
      worst = std::max(worst, error);
      squares += error * error;
    }
    largest_error_ = std::max(largest_error_, worst);
    EXPECT_LE(worst, tolerance_.each_logit);
    EXPECT_LE(std::sqrt(squares / static_cast<double>(expected.size())), tolerance_.mean_rms);
  }

  void compare_best(const std::vector<std::vector<float>>& logits, std::size_t first_row,
                    const std::vector<std::size_t>& expected, const std::vector<double>& margins) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const std::size_t best = best_of(logits[first_row + i]);
      ++num_best_;
      num_equal_ += best == expected[i] ? 1 : 0;
      if (margins[i] > tolerance_.margin * deviation_) {
        EXPECT_EQ(best, expected[i]) << "row " << first_row + i << ", margin " << margins[i];
      }
    }
  }

  ModelRunner& runner_;
  Tolerance tolerance_;
  double deviation_ = 1;
  double largest_error_ = 0;
  std::size_t num_best_ = 0;
  std::size_t num_equal_ = 0;
};

// Runs a model on the CPU backend through all cases of the file `golden`.
inline void check_golden(const ModelFiles& files, const std::string& golden, CpuDType dtype,
                         const Tolerance& tolerance, InstructionSet set = best_instruction_set()) {
  CpuOptions options;
  options.dtype = dtype;
  options.threads = 2;
  options.block_size_tokens = 16;
  options.num_blocks = 128;
  options.instruction_set = set;
  const auto runner = make_cpu_runner(*files.tensors, files.config, options);
  std::ifstream stream(golden);
  ASSERT_TRUE(stream) << golden;
  auto cases = nlohmann::json::parse(stream);
  if (cases.is_object()) cases = cases.at("cases");
  GoldenCheck check(runner.get(), tolerance);
  for (const auto& c : cases) check.check(c);
  check.finish();
  for (const std::string& line : runner->gemm_implementations()) {
    EXPECT_EQ(line.find("ref"), std::string::npos) << line;
  }
}

}  // namespace batchmill::testing
