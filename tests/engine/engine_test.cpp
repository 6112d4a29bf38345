#include "engine/engine.h"

#include "tests/engine/engine_harness.h"

namespace batchmill::testing {
namespace {

std::vector<TokenId> letters(std::string_view text) {
  return LetterTokenizer().encode(text, false);
}

// A device that writes what a table says: after the prompt's last letter, this text and the end.
std::function<TokenId(std::span<const TokenId>)> writes(std::size_t prompt_size,
                                                        std::vector<TokenId> reply) {
  return [=](std::span<const TokenId> context) {
    const std::size_t i = context.size() - prompt_size;
    return i < reply.size() ? reply[i] : kEndToken;
  };
}

class EngineTest : public ::testing::Test {
 protected:
  RequestOutput run(const Request& request, ScriptedRunnerOptions device = {}) {
    ScriptedRunner runner(device);
    Engine engine(options_, &runner, &tokenizer_);
    engine.add(request);
    Outputs outputs = finish(engine, &totals_);
    expect_all_blocks_back(engine);
    return outputs[request.id];
  }

  LetterTokenizer tokenizer_;
  EngineOptions options_ = small_engine();
  Totals totals_;
};

TEST_F(EngineTest, EndsAtTheEndTokenAndLeavesItsTextOut) {
  ScriptedRunnerOptions device;
  device.script = writes(3, letters("hello"));
  const auto output = run(make_request(9, letters("say"), 50), device);
  ASSERT_EQ(output.choices.size(), 1u);
  EXPECT_EQ(output.id, 9u);
  EXPECT_EQ(output.choices[0].text, "hello");
  EXPECT_EQ(output.choices[0].finish_reason, FinishReason::kStop);
  auto ids = letters("hello");
  ids.push_back(kEndToken);
  EXPECT_EQ(output.choices[0].token_ids, ids);
  EXPECT_EQ(output.num_prompt_tokens, 3);
  EXPECT_EQ(output.num_cached_tokens, 0);
  EXPECT_EQ(output.num_completion_tokens, 6);
  EXPECT_EQ(totals_.prefill_rows, 3);
  EXPECT_EQ(totals_.decode_rows, 5);
  EXPECT_EQ(totals_.steps, 6);
}

TEST_F(EngineTest, EndsAtMaxTokensAndAtTheContextsEnd) {
  auto request = make_request(1, letters("abc"), 4);
  request.params.ignore_eos = true;
  EXPECT_EQ(run(request).choices[0].token_ids.size(), 4u);
  EXPECT_EQ(run(request).choices[0].finish_reason, FinishReason::kLength);
  request.params.max_tokens = 1'000'000'000;
  const auto output = run(request);
  EXPECT_EQ(output.choices[0].token_ids.size(),
            static_cast<std::size_t>(options_.max_context_tokens) - 3);
  EXPECT_EQ(output.choices[0].finish_reason, FinishReason::kLength);
}

TEST_F(EngineTest, CutsTextAndLogprobsBeforeAStopString) {
  ScriptedRunnerOptions device;
  device.script = writes(3, letters("one two three"));
  auto request = make_request(1, letters("say"), 50);
  request.params.stop = {"o t"};
  request.params.logprobs = 2;
  const auto output = run(request, device);
  EXPECT_EQ(output.choices[0].text, "one tw");
  EXPECT_EQ(output.choices[0].finish_reason, FinishReason::kStop);
  EXPECT_EQ(output.choices[0].token_ids, letters("one two t"));
  ASSERT_EQ(output.choices[0].logprobs.size(), 6u);
  EXPECT_EQ(output.choices[0].logprobs[1].chosen.token, letters("n")[0]);
  EXPECT_EQ(output.choices[0].logprobs[1].top.size(), 2u);
}

TEST_F(EngineTest, ChoicesShareThePromptAndDrawOnTheirOwn) {
  auto request = make_request(1, letters("abcdefg"), 6);
  request.num_choices = 5;
  request.params.temperature = 1.0f;
  request.params.ignore_eos = true;
  const auto output = run(request);
  ASSERT_EQ(output.choices.size(), 5u);
  EXPECT_EQ(output.num_prompt_tokens, 7);
  EXPECT_EQ(output.num_cached_tokens, 0);
  EXPECT_EQ(output.num_completion_tokens, 30);
  EXPECT_EQ(output.num_recomputed_tokens, 0);
  EXPECT_EQ(totals_.prefill_rows, 7);
  EXPECT_EQ(totals_.decode_rows, 25);
  EXPECT_NE(output.choices[0].token_ids, output.choices[1].token_ids);
  // first_choice moves the draws along.
  request.first_choice = 3;
  request.num_choices = 2;
  EXPECT_EQ(run(request).choices[0].token_ids, output.choices[3].token_ids);
  EXPECT_EQ(run(request).choices[1].token_ids, output.choices[4].token_ids);
}

TEST_F(EngineTest, ChoicesRunInWavesOnASmallPool) {
  auto request = make_request(1, letters("abcdefghijklmnopqrstu"), 20);
  request.num_choices = 12;
  request.params.temperature = 1.0f;
  request.params.ignore_eos = true;
  const auto alone = run(request, {.num_blocks = 512});
  const auto output = run(request, {.num_blocks = 14});
  expect_same_result(output, alone);
  EXPECT_EQ(output.num_cached_tokens, 0);
}

TEST_F(EngineTest, AnIdenticalPromptComputesOnlyItsLastToken) {
  for (const std::size_t size : {1u, 3u, 4u, 8u, 9u}) {
    const auto prompt = letters(std::string_view("abcdefghijkl").substr(0, size));
    ScriptedRunner runner({});
    Engine engine(options_, &runner, &tokenizer_);
    engine.add(make_request(1, prompt, 3));
    finish(engine);
    EXPECT_EQ(engine.cached_prefix_tokens(prompt), static_cast<std::int32_t>(size) - 1);
    // The same prompt twice in one step, too.
    engine.add(make_request(2, prompt, 3));
    engine.add(make_request(3, prompt, 3));
    Outputs outputs = finish(engine);
    EXPECT_EQ(outputs[2].num_cached_tokens, static_cast<std::int32_t>(size) - 1);
    EXPECT_EQ(outputs[3].num_cached_tokens, static_cast<std::int32_t>(size) - 1);
    EXPECT_EQ(outputs[2].choices[0].token_ids, outputs[3].choices[0].token_ids);
  }
}

TEST_F(EngineTest, PromptLogprobsBypassReuseAndMatchWhatChunksGive) {
  const auto prompt = letters("the quick brown fox jumps over the lazy dog");
  auto request = make_request(2, prompt, 4);
  request.params.prompt_logprobs = true;
  request.params.logprobs = 3;
  const auto whole = run(request);
  EXPECT_EQ(whole.prompt_logprobs.size(), prompt.size() - 1);
  for (std::size_t i = 0; i + 1 < prompt.size(); ++i) {
    EXPECT_EQ(whole.prompt_logprobs[i].chosen.token, prompt[i + 1]);
  }
  options_.max_num_batched_tokens = 5;
  ScriptedRunner runner({});
  Engine engine(options_, &runner, &tokenizer_);
  engine.add(make_request(1, prompt, 4));
  finish(engine);
  engine.add(request);
  const auto chunked = finish(engine)[2];
  expect_same_result(chunked, whole);
  EXPECT_EQ(chunked.num_cached_tokens, 0);
}

TEST_F(EngineTest, NoTokensAskedForAreNoTokensMade) {
  const auto plain = run(make_request(1, letters("abcdef"), 0));
  EXPECT_EQ(plain.choices[0].finish_reason, FinishReason::kLength);
  EXPECT_EQ(plain.choices[0].text, "");
  EXPECT_EQ(plain.num_completion_tokens, 0);
  EXPECT_EQ(totals_.rows, 0);
  EXPECT_EQ(plain.num_cached_tokens, 6);

  auto request = make_request(1, letters("abcdef"), 0);
  request.params.prompt_logprobs = true;
  request.num_choices = 2;
  const auto scored = run(request);
  EXPECT_EQ(scored.choices.size(), 2u);
  EXPECT_EQ(scored.choices[1].finish_reason, FinishReason::kLength);
  EXPECT_EQ(scored.num_completion_tokens, 0);
  EXPECT_EQ(scored.prompt_logprobs.size(), 5u);
  EXPECT_EQ(totals_.rows, 6);
  EXPECT_EQ(scored.num_cached_tokens, 0);
}

TEST_F(EngineTest, RefusesRequestsThatCanNeverRun) {
  ScriptedRunner runner({.num_blocks = 4});  // 16 tokens
  Engine engine(options_, &runner, &tokenizer_);
  EXPECT_EQ(engine.max_sequence_tokens(), 16);
  EXPECT_THROW(engine.add(make_request(1, {}, 3)), std::invalid_argument);
  EXPECT_THROW(engine.add(make_request(1, {64}, 3)), std::invalid_argument);
  EXPECT_THROW(engine.add(make_request(1, {-1}, 3)), std::invalid_argument);
  EXPECT_THROW(engine.add(make_request(1, std::vector<TokenId>(16, 1), 3)), std::invalid_argument);
  auto none = make_request(1, {1}, 3);
  none.num_choices = 0;
  EXPECT_THROW(engine.add(none), std::invalid_argument);
  EXPECT_FALSE(engine.has_work());
  engine.add(make_request(1, std::vector<TokenId>(15, 1), 3));
  EXPECT_THROW(engine.add(make_request(1, {1}, 3)), std::invalid_argument);
  EXPECT_EQ(finish(engine)[1].num_completion_tokens, 1);
}

TEST_F(EngineTest, CancelEndsARequestOnceAndFreesItsBlocks) {
  ScriptedRunner runner({});
  options_.max_num_seqs = 2;
  Engine engine(options_, &runner, &tokenizer_);
  auto running = make_request(1, letters("abcdef"), 40);
  running.num_choices = 2;
  running.params.ignore_eos = true;
  engine.add(running);
  engine.step();
  engine.add(make_request(2, letters("ghi"), 4));
  engine.step();
  EXPECT_EQ(engine.stats().num_running, 1);
  EXPECT_EQ(engine.stats().num_running_seqs, 2);
  EXPECT_EQ(engine.stats().num_waiting, 1);
  EXPECT_EQ(engine.stats().waiting_prompt_tokens, 3);
  engine.cancel(1);
  engine.cancel(1);
  engine.cancel(2);
  engine.cancel(77);
  EXPECT_TRUE(engine.has_work());
  expect_all_blocks_back(engine);
  const auto outputs = finish(engine);
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_EQ(outputs.at(1).choices.size(), 2u);
  EXPECT_EQ(outputs.at(1).choices[1].finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(outputs.at(1).choices[0].token_ids.size(), 2u);
  EXPECT_EQ(outputs.at(2).choices[0].finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(outputs.at(2).num_completion_tokens, 0);
  EXPECT_EQ(outputs.at(2).num_cached_tokens, 3);
}

TEST_F(EngineTest, AFailedStepCountsNothingAndLeavesTheEngineUsable) {
  bool fails = true;
  ScriptedRunner runner({.before_step = [&](std::int64_t) {
    if (fails) throw InjectedFailure();
  }});
  Engine engine(options_, &runner, &tokenizer_);
  const auto request = make_request(1, letters("abcdefghij"), 5);
  engine.add(request);
  engine.cancel(2);
  for (int i = 0; i < 3; ++i) EXPECT_THROW(engine.step(), InjectedFailure);
  EXPECT_EQ(engine.stats().num_rows, 0);
  EXPECT_EQ(engine.cached_prefix_tokens(request.prompt), 0);
  fails = false;
  Outputs outputs = finish(engine);
  expect_same_result(outputs[1], run_alone(request, options_, &tokenizer_));
  EXPECT_EQ(outputs[1].num_cached_tokens, 0);
  EXPECT_EQ(outputs[1].num_recomputed_tokens, 0);
}

TEST_F(EngineTest, RunsInSmallerStepsWhereThereIsNoMemoryForLargeOnes) {
  ScriptedRunner runner({.max_rows = 3});
  Engine engine(options_, &runner, &tokenizer_);
  std::vector<Request> requests;
  for (RequestId id = 1; id <= 6; ++id) {
    requests.push_back(make_request(id, letters("abcdefghij"), 4 + static_cast<int>(id)));
    requests.back().prompt.push_back(static_cast<TokenId>(id));
    engine.add(requests.back());
  }
  Outputs outputs;
  std::vector<std::int32_t> limits;
  while (engine.has_work()) {
    try {
      for (RequestOutput& output : engine.step().finished) outputs[output.id] = std::move(output);
    } catch (const std::bad_alloc&) {
      limits.push_back(engine.shrink_steps());
      ASSERT_GT(limits.back(), 0);
    }
  }
  // The first step has one prompt: the others wait for what they share with it.
  EXPECT_EQ(limits, (std::vector<std::int32_t>{5, 2}));
  for (const Request& request : requests) {
    expect_same_result(outputs[request.id], run_alone(request, options_, &tokenizer_));
  }
}

TEST_F(EngineTest, StepsGrowBackWhenThereIsMemoryAgain) {
  ScriptedRunner runner({.num_blocks = 512});
  options_.max_num_batched_tokens = 64;
  options_.max_context_tokens = 512;
  Engine engine(options_, &runner, &tokenizer_);
  Request request = make_request(1, letters("a"), 1);
  request.prompt.resize(400, request.prompt.front());
  engine.add(request);
  EXPECT_EQ(engine.step().num_tokens, 64);
  EXPECT_EQ(engine.shrink_steps(), 32);
  EXPECT_EQ(engine.step().num_tokens, 32);
  std::vector<std::int32_t> limits;
  do {
    limits.push_back(engine.grow_steps());
    EXPECT_EQ(engine.step().num_tokens, limits.back() == 0 ? 64 : limits.back());
  } while (limits.back() > 0);
  EXPECT_EQ(limits, (std::vector<std::int32_t>{40, 48, 56, 0}));
}

TEST_F(EngineTest, CannotMakeStepsOfLessThanOneRow) {
  ScriptedRunner runner({.max_rows = 0});
  options_.max_num_batched_tokens = 1;
  Engine engine(options_, &runner, &tokenizer_);
  engine.add(make_request(1, letters("abc"), 2));
  EXPECT_THROW(engine.step(), std::bad_alloc);
  EXPECT_EQ(engine.shrink_steps(), 0);
}

TEST_F(EngineTest, BrokenLogitsFailTheirRequestOnly) {
  class PoisonedRunner : public ScriptedRunner {
   public:
    using ScriptedRunner::ScriptedRunner;
    void forward(const Batch& batch, std::span<float> logits) override {
      ScriptedRunner::forward(batch, logits);
      // Whose third token is "z" gets NaN.
      for (std::size_t i = 0; i < batch.logits_rows.size(); ++i) {
        const auto row = static_cast<std::size_t>(batch.logits_rows[i]);
        if (batch.token_ids[row] == 25 && batch.positions[row] == 2)
          logits[i * 64 + 7] = std::nanf("");
      }
    }
  };
  for (const bool draws_tokens : {false, true}) {
    PoisonedRunner runner{{.draws_tokens = draws_tokens}};
    Engine engine(options_, &runner, &tokenizer_);
    auto broken = make_request(1, letters("xyz"), 5);
    broken.num_choices = 3;
    engine.add(broken);
    const auto healthy = make_request(2, letters("abc"), 5);
    engine.add(healthy);
    Outputs outputs = finish(engine);
    EXPECT_NE(outputs[1].error, "");
    EXPECT_EQ(outputs[1].num_completion_tokens, 0);
    EXPECT_EQ(outputs[2].error, "");
    EXPECT_EQ(outputs[2].choices[0].token_ids,
              run_alone(healthy, options_, &tokenizer_).choices[0].token_ids);
    expect_all_blocks_back(engine);
  }
}

// Of a device that draws tokens the host sees the logits that it needs, and no others.
TEST_F(EngineTest, LogprobsAloneBringLogitsToTheHost) {
  ScriptedRunner runner({.draws_tokens = true});
  Engine engine(options_, &runner, &tokenizer_);
  std::map<RequestId, Request> requests;
  for (RequestId id = 0; id < 5; ++id) {
    Request& request = requests[id];
    request = make_request(id, letters("abcdefgh"), 6);
    request.prompt.push_back(static_cast<TokenId>(id));
    request.params.temperature = 0.9f;
    request.params.ignore_eos = true;
  }
  requests[1].params.logprobs = 0;
  requests[2].params.prompt_logprobs = true;
  requests[3].num_choices = 3;
  requests[4].params.logit_bias = {{4, 2.0f}};
  requests[4].params.frequency_penalty = 0.5f;
  for (const auto& [id, request] : requests) engine.add(request);
  Outputs outputs = finish(engine);
  for (const auto& [id, request] : requests) {
    expect_same_result(outputs[id], run_alone(request, options_, &tokenizer_));
  }
  EXPECT_EQ(runner.num_host_rows(), 6 + 9);  // a row for each token of line 1, and line 2's prompt
  EXPECT_EQ(runner.num_draws(), 6 + 5 + 3 * 6 + 6);
}

TEST_F(EngineTest, RepeatsItselfExactly) {
  const auto trace = [&] {
    ScriptedRunner runner({.num_blocks = 30});
    Engine engine(options_, &runner, &tokenizer_);
    std::vector<std::int64_t> numbers;
    for (RequestId id = 0; id < 12; ++id) {
      auto request =
          make_request(id, std::vector<TokenId>(5 + id, static_cast<TokenId>(id % 3)), 9);
      request.params.temperature = 1.0f;
      request.params.seed = id;
      engine.add(request);
    }
    while (engine.has_work()) {
      const StepOutput step = engine.step();
      numbers.push_back(step.num_tokens);
      for (const RequestOutput& output : step.finished) {
        numbers.push_back(static_cast<std::int64_t>(output.id));
        for (const TokenId token : output.choices[0].token_ids) numbers.push_back(token);
      }
    }
    return numbers;
  };
  EXPECT_EQ(trace(), trace());
}

TEST_F(EngineTest, WorksWithoutATokenizer) {
  ScriptedRunner runner({});
  Engine engine(options_, &runner, nullptr);
  auto request = make_request(1, letters("abc"), 5);
  request.params.stop = {"a"};
  request.params.logprobs = 0;
  request.params.ignore_eos = true;
  engine.add(request);
  const auto output = finish(engine)[1];
  EXPECT_EQ(output.choices[0].text, "");
  EXPECT_EQ(output.choices[0].token_ids.size(), 5u);
  EXPECT_EQ(output.choices[0].logprobs.size(), 5u);
}

}  // namespace
}  // namespace batchmill::testing
