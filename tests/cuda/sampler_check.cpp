#include "cuda/sampler_kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "cuda/sample_rows.h"
#include "engine/sampler.h"
#include "tests/cuda/check.h"

namespace batchmill::testing {
namespace {

// A row for both samplers.
struct DrawCase {
  SamplingParams params;
  std::vector<TokenId> prompt;
  std::vector<TokenId> generated;
  std::vector<TokenId> eos;
  std::int32_t choice = 0;
};

class Draws {
 public:
  Draws(Check* check, int vocab) : check_(*check), vocab_(vocab) {}

  void add(const DrawCase& draw, std::vector<float> logits) {
    draws_.push_back(draw);
    logits_.insert(logits_.end(), logits.begin(), logits.end());
  }

  // Rows are in another order than their logits.
  void compare() {
    make_rows();
    std::reverse(rows_.begin(), rows_.end());
    const DeviceArray<float> logits(&check_, logits_);
    const DeviceArray<SampleRow> rows(&check_, rows_);
    const DeviceArray<std::int32_t> tokens(&check_, tokens_);
    const DeviceArray<std::int32_t> bias_tokens(&check_, bias_tokens_);
    const DeviceArray<float> biases(&check_, biases_);
    const std::size_t changed_size = static_cast<std::size_t>(std::max(1, num_changed_) * vocab_);
    const DeviceArray<float> changed(&check_, changed_size);
    const DeviceArray<std::uint32_t> seen(&check_, changed_size);
    const DeviceArray<std::int32_t> chosen(&check_, rows_.size());
    launch_sample({logits.data(), rows.data(), tokens.data(), bias_tokens.data(), biases.data(),
                   changed.data(), seen.data(), chosen.data(), vocab_},
                  size_of(rows_), check_.stream());
    std::vector<std::int32_t> got = chosen.read();
    std::reverse(got.begin(), got.end());
    Sampler sampler(vocab_);
    for (std::size_t i = 0; i < draws_.size(); ++i) {
      const SamplingContext context = context_of(draws_[i]);
      const auto vocab = static_cast<std::size_t>(vocab_);
      const std::optional<TokenId> expected =
          sampler.sample(std::span(logits_).subspan(i * vocab, vocab), context);
      if (got[i] == expected.value_or(-1)) continue;
      return check_.fail("draw " + std::to_string(i) + " is " + std::to_string(got[i]) + ", not " +
                         std::to_string(expected.value_or(-1)));
    }
    check_.expect(draws_.size() > 1, "nothing was drawn");
  }

 private:
  static SamplingContext context_of(const DrawCase& draw) {
    return {&draw.params, draw.eos, draw.prompt, draw.generated, draw.choice};
  }
  // As the backend does, but with working memory for all.
  void make_rows() {
    SampleLists lists;
    for (const DrawCase& draw : draws_) {
      const SamplingContext context = context_of(draw);
      SampleRow row = sample_row(context, size_of(rows_), lists);
      if (changes_logits(row)) row.changed_row = num_changed_++;
      SampleLists all = lists;
      add_lists(row, &all);
      tokens_.resize(all.tokens);
      bias_tokens_.resize(all.biases);
      biases_.resize(all.biases);
      write_tokens(context, row, tokens_.data() + lists.tokens);
      write_biases(context, bias_tokens_.data() + lists.biases, biases_.data() + lists.biases);
      lists = all;
      rows_.push_back(row);
    }
  }
  template <typename T>
  static int size_of(const std::vector<T>& list) {
    return static_cast<int>(list.size());
  }

  Check& check_;
  int vocab_;
  std::vector<DrawCase> draws_;
  std::vector<float> logits_;
  int num_changed_ = 0;
  std::vector<SampleRow> rows_;
  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> bias_tokens_;
  std::vector<float> biases_;
};

constexpr int kVocab = 1500;  // more than a segment, no multiple of anything

DrawCase with(std::uint64_t seed, float temperature, std::int32_t top_k, float top_p, float min_p) {
  DrawCase draw;
  draw.params.seed = seed * 0x100000001ull;
  draw.params.temperature = temperature;
  draw.params.top_k = top_k;
  draw.params.top_p = top_p;
  draw.params.min_p = min_p;
  draw.choice = static_cast<std::int32_t>(seed % 3);
  draw.generated.assign(seed % 5, 1);
  return draw;
}

}  // namespace

KERNEL_CHECK(sample_as_the_cpu_does) {
  Draws draws(&check, kVocab);
  std::uint64_t seed = 1;
  for (const float temperature : {0.0f, 0.3f, 1.0f, 2.5f}) {
    for (const std::int32_t top_k : {0, 1, 7, 400, 5000}) {
      for (const float top_p : {1.0f, 0.9f, 0.3f, 1e-6f}) {
        for (const float min_p : {0.0f, 0.05f, 1.0f}) {
          draws.add(with(seed++, temperature, top_k, top_p, min_p), check.normal(kVocab, 3.0f));
        }
      }
    }
  }
  draws.compare();
}

// Of few candidates that weigh nearly the same, one more or less shows. One of the 512 threads has
// them all, so that the list is longer than what is asked for.
KERNEL_CHECK(sample_as_the_cpu_does_from_few) {
  constexpr int kMany = 4500;
  Draws draws(&check, kMany);
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    std::vector<float> logits = check.normal(kMany, 0.1f);
    for (std::size_t i = 5; i < logits.size(); i += 512) logits[i] += 5.0f;
    draws.add(with(seed, 1.0f, static_cast<std::int32_t>(2 + seed % 4), 1.0f, 0.0f), logits);
  }
  draws.compare();
}

// Sums over several segments go from many warps to one thread.
KERNEL_CHECK(sample_as_the_cpu_does_over_segments) {
  constexpr int kSeveralSegments = 4500;
  Draws draws(&check, kSeveralSegments);
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    draws.add(with(seed, 1.0f, seed % 2 == 0 ? 0 : 900, seed % 4 < 2 ? 1.0f : 0.8f, 0.0f),
              check.normal(kSeveralSegments, 2.0f));
  }
  draws.compare();
}

// More than a list of the best has room for: by the candidates' number, and by where they lie.
KERNEL_CHECK(sample_as_the_cpu_does_from_many) {
  constexpr int kMany = 4500;
  Draws draws(&check, kMany);
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    const std::int32_t top_k = seed % 3 == 0 ? 0 : seed % 3 == 1 ? 900 : 253;
    std::vector<float> logits = check.normal(kMany, 0.1f);
    if (top_k == 253) {
      for (std::size_t i = 0; i < logits.size(); ++i) logits[i] += i % 512 < 250 ? 2.0f : 0.0f;
    }
    draws.add(with(seed, 1.0f, top_k, seed % 2 == 0 ? 0.99f : 1.0f, seed % 4 < 2 ? 0.0f : 0.01f),
              logits);
  }
  draws.compare();
}

KERNEL_CHECK(sample_among_equal_logits) {
  Draws draws(&check, kVocab);
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    std::vector<float> logits = check.normal(kVocab);
    for (float& logit : logits) logit = std::round(logit);  // a dozen values; zeros of both signs
    draws.add(with(seed, 1.0f, seed % 2 == 0 ? 300 : 0, seed % 4 < 2 ? 0.5f : 1.0f, 0.0f), logits);
  }
  draws.compare();
}

KERNEL_CHECK(sample_with_penalties_and_biases) {
  Draws draws(&check, kVocab);
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    DrawCase draw = with(seed, seed % 3 == 0 ? 0.0f : 1.0f, seed % 5 == 0 ? 20 : 0, 0.95f, 0.0f);
    for (int i = 0; i < 60; ++i) {
      draw.prompt.push_back(static_cast<TokenId>(check.random() % kVocab));
      draw.generated.push_back(static_cast<TokenId>(check.random() % 40));
    }
    if (seed % 2 == 0) draw.params.repetition_penalty = seed % 4 == 0 ? 1.3f : 0.8f;
    if (seed % 3 != 1) draw.params.frequency_penalty = 0.37f;
    if (seed % 3 != 2) draw.params.presence_penalty = -0.6f;
    draw.params.min_tokens = seed % 2 == 0 ? 1000 : 0;
    draw.eos = {5, 6};
    draw.params.stop_token_ids = {7, 99999};
    draw.params.logit_bias = {{3, 2.5f}, {1200, 5.0f}, {3, 1.25f}};
    std::vector<float> logits = check.normal(kVocab, 2.0f);
    logits[6] = 12.0f;
    draws.add(draw, logits);
  }
  draws.compare();
}

KERNEL_CHECK(sample_from_strange_logits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Draws draws(&check, kVocab);
  for (const float temperature : {0.0f, 1.0f}) {
    for (const float strange : {NAN, kInfinity, -kInfinity}) {
      std::vector<float> logits = check.normal(kVocab);
      logits[700] = strange;
      draws.add(with(3, temperature, 0, 1.0f, 0.0f), logits);
      draws.add(with(4, temperature, 0, 1.0f, 0.0f), std::vector<float>(kVocab, strange));
    }
    std::vector<float> lonely(kVocab, -kInfinity);
    lonely[kVocab - 1] = -3.0f;
    draws.add(with(5, temperature, 40, 0.5f, 0.1f), lonely);
    std::vector<float> steep = check.normal(kVocab, 300.0f);
    draws.add(with(6, temperature, 0, 0.999f, 0.0f), steep);
  }
  draws.add(with(7, 1e-40f, 0, 1.0f, 0.0f), check.normal(kVocab));
  draws.compare();
}

}  // namespace batchmill::testing
