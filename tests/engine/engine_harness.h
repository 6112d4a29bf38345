// What the engine's tests share: run requests to their end, alone or together, and compare.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "engine/engine.h"
#include "tests/support/letter_tokenizer.h"
#include "tests/support/scripted_runner.h"

namespace batchmill::testing {

inline EngineOptions small_engine() {
  EngineOptions options;
  options.max_num_seqs = 8;
  options.max_num_batched_tokens = 32;
  options.max_context_tokens = 96;
  options.generation_reserve_tokens = 4;
  options.eos_token_ids = {kEndToken};
  return options;
}

inline Request make_request(RequestId id, std::vector<TokenId> prompt, std::int32_t max_tokens) {
  Request request;
  request.id = id;
  request.prompt = std::move(prompt);
  request.params.temperature = 0.0f;
  request.params.max_tokens = max_tokens;
  return request;
}

using Outputs = std::map<RequestId, RequestOutput>;

struct Totals {
  std::int64_t rows = 0;
  std::int64_t prefill_rows = 0;
  std::int64_t decode_rows = 0;
  std::int64_t steps = 0;
};

// Steps until nothing is left. Injected failures are stepped over. Fails if work never ends.
inline Outputs finish(Engine& engine, Totals* totals = nullptr) {
  Outputs outputs;
  Totals sums;
  while (engine.has_work()) {
    if (++sums.steps > 100'000) {
      ADD_FAILURE() << "the engine makes no progress";
      break;
    }
    try {
      StepOutput step = engine.step();
      sums.rows += step.num_tokens;
      for (const RequestWork& work : step.work) {
        sums.prefill_rows += work.num_prefill_tokens;
        sums.decode_rows += work.num_decode_tokens;
      }
      for (RequestOutput& output : step.finished) {
        EXPECT_FALSE(outputs.contains(output.id)) << "finished twice";
        outputs[output.id] = std::move(output);
      }
    } catch (const InjectedFailure&) {
    }
  }
  if (totals != nullptr) *totals = sums;
  return outputs;
}

// What the request gives on a device of its own.
inline RequestOutput run_alone(const Request& request, const EngineOptions& options,
                               const Tokenizer* tokenizer) {
  ScriptedRunner runner({.num_blocks = 512});
  Engine engine(options, &runner, tokenizer);
  engine.add(request);
  Outputs outputs = finish(engine);
  EXPECT_EQ(outputs.size(), 1u);
  return outputs[request.id];
}

inline void expect_same_logprobs(const std::vector<PositionLogprobs>& a,
                                 const std::vector<PositionLogprobs>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].chosen.token, b[i].chosen.token);
    EXPECT_EQ(a[i].chosen.logprob, b[i].chosen.logprob);
    ASSERT_EQ(a[i].top.size(), b[i].top.size());
    for (std::size_t j = 0; j < a[i].top.size(); ++j) {
      EXPECT_EQ(a[i].top[j].token, b[i].top[j].token);
      EXPECT_EQ(a[i].top[j].logprob, b[i].top[j].logprob);
    }
  }
}

// Everything a user sees is equal; the work it took may differ.
inline void expect_same_result(const RequestOutput& a, const RequestOutput& b) {
  SCOPED_TRACE("request " + std::to_string(a.id));
  EXPECT_EQ(a.error, b.error);
  EXPECT_EQ(a.num_prompt_tokens, b.num_prompt_tokens);
  EXPECT_EQ(a.num_completion_tokens, b.num_completion_tokens);
  expect_same_logprobs(a.prompt_logprobs, b.prompt_logprobs);
  ASSERT_EQ(a.choices.size(), b.choices.size());
  for (std::size_t i = 0; i < a.choices.size(); ++i) {
    EXPECT_EQ(a.choices[i].token_ids, b.choices[i].token_ids);
    EXPECT_EQ(a.choices[i].text, b.choices[i].text);
    EXPECT_EQ(a.choices[i].finish_reason, b.choices[i].finish_reason);
    expect_same_logprobs(a.choices[i].logprobs, b.choices[i].logprobs);
  }
}

// rows = Σ (prompt − cached) + recomputed + Σ over choices max(0, completion − 1).
inline std::int64_t expected_rows(const Outputs& outputs) {
  std::int64_t rows = 0;
  for (const auto& [id, output] : outputs) {
    rows += output.num_prompt_tokens - output.num_cached_tokens + output.num_recomputed_tokens;
    for (const Choice& choice : output.choices) {
      rows += std::max<std::int64_t>(0, static_cast<std::int64_t>(choice.token_ids.size()) - 1);
    }
  }
  return rows;
}

// Nothing is running: every block must be free or only cached.
inline void expect_all_blocks_back(const Engine& engine) {
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.num_running_seqs, 0);
  EXPECT_EQ(stats.num_waiting, 0);
  EXPECT_EQ(stats.num_free_blocks, stats.num_blocks);
  EXPECT_LE(stats.num_cached_blocks, stats.num_free_blocks);
}

// Rows that prefix sharing cannot avoid, whatever the order: each distinct prefix once, and the
// last token of each prompt that equals another one.
inline std::int64_t least_rows(const std::vector<std::vector<TokenId>>& prompts) {
  std::set<std::vector<TokenId>> prefixes;
  for (const auto& prompt : prompts) {
    for (std::size_t size = 1; size <= prompt.size(); ++size) {
      prefixes.insert({prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(size)});
    }
  }
  const std::set<std::vector<TokenId>> distinct(prompts.begin(), prompts.end());
  return static_cast<std::int64_t>(prefixes.size() + prompts.size() - distinct.size());
}

// Distinct proper prefixes over all prompts, plus each prompt's last token: what `possible` counts.
inline std::int64_t trie_bound(const std::vector<std::vector<TokenId>>& prompts) {
  std::set<std::vector<TokenId>> prefixes;
  for (const auto& prompt : prompts) {
    for (std::size_t size = 1; size < prompt.size(); ++size) {
      prefixes.insert({prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(size)});
    }
  }
  return static_cast<std::int64_t>(prefixes.size() + prompts.size());
}

}  // namespace batchmill::testing
