// Steps begun before the tokens of the step ahead of them are read: the answers, the rows that
// count and the KV that is left are those of an engine that waits.
#include "tests/engine/engine_harness.h"

namespace batchmill::testing {
namespace {

std::vector<TokenId> letters(std::string_view text) {
  return LetterTokenizer().encode(text, false);
}

// Goes on with `reply` behind the prompt's tokens, then with the end.
std::function<TokenId(std::span<const TokenId>)> writes(std::size_t prompt_size,
                                                        std::vector<TokenId> reply) {
  return [=](std::span<const TokenId> context) {
    const std::size_t i = context.size() - prompt_size;
    return i < reply.size() ? reply[i] : kEndToken;
  };
}

struct Answers {
  Outputs outputs;
  Totals totals;
  EngineStats stats;
  std::int64_t num_steps = 0;
  std::int64_t steps_ahead = 0;
};

class EngineAheadTest : public ::testing::TestWithParam<bool> {
 protected:
  ScriptedRunnerOptions device() const { return {.draws_tokens = true, .is_eager = GetParam()}; }

  Answers run(const std::vector<Request>& requests, const ScriptedRunnerOptions& device,
              bool runs_ahead) {
    options_.runs_ahead = runs_ahead;
    ScriptedRunner runner(device);
    Engine engine(options_, &runner, &tokenizer_);
    for (const Request& request : requests) engine.add(request);
    Answers answers;
    answers.outputs = finish(engine, &answers.totals);
    expect_all_blocks_back(engine);
    answers.stats = engine.stats();
    answers.num_steps = runner.num_steps();
    answers.steps_ahead = runner.num_steps_ahead();
    EXPECT_EQ(runner.num_under_way(), 0);
    EXPECT_EQ(answers.stats.num_rows + answers.stats.num_dropped_rows, runner.num_rows());
    return answers;
  }

  // Runs ahead and not; returns the answers of the former.
  Answers expect_same(const std::vector<Request>& requests, const ScriptedRunnerOptions& device) {
    const Answers waiting = run(requests, device, false);
    Answers ahead = run(requests, device, true);
    EXPECT_EQ(waiting.steps_ahead, 0);
    EXPECT_EQ(waiting.stats.num_dropped_rows, 0);
    for (const Request& request : requests) {
      expect_same_result(ahead.outputs[request.id], waiting.outputs.at(request.id));
    }
    EXPECT_EQ(ahead.stats.num_rows, expected_rows(ahead.outputs));
    EXPECT_EQ(ahead.totals.rows, ahead.stats.num_rows);
    EXPECT_EQ(ahead.totals.decode_rows, waiting.totals.decode_rows);
    return ahead;
  }

  LetterTokenizer tokenizer_;
  EngineOptions options_ = small_engine();
};

TEST_P(EngineAheadTest, TheNextStepIsBegunBeforeTokensAreRead) {
  for (const bool runs_ahead : {false, true}) {
    std::vector<std::int32_t> under_way;
    const ScriptedRunner* runner_of_hook = nullptr;
    ScriptedRunner runner({.draws_tokens = true, .before_step = [&](std::int64_t) {
                             under_way.push_back(runner_of_hook->num_under_way());
                           }});
    runner_of_hook = &runner;
    options_.runs_ahead = runs_ahead;
    Engine engine(options_, &runner, &tokenizer_);
    Request request = make_request(1, letters("abc"), 5);
    request.params.ignore_eos = true;
    engine.add(request);
    EXPECT_EQ(engine.step().work.size(), 1u);
    EXPECT_EQ(runner.num_under_way(), runs_ahead ? 1 : 0);
    finish(engine);
    // The device computes a step when it is waited for: by then it has the next one. The last is
    // known to be the last.
    const std::int32_t most = runs_ahead ? 2 : 1;
    EXPECT_EQ(under_way, (std::vector<std::int32_t>{most, most, most, most, 1}));
    EXPECT_EQ(engine.stats().num_dropped_rows, 0);
  }
}

TEST_P(EngineAheadTest, WhatEndsUnforeseenLosesARow) {
  ScriptedRunnerOptions device = this->device();
  device.script = writes(3, letters("one two three"));
  Request request = make_request(1, letters("say"), 50);
  EXPECT_EQ(expect_same({request}, device).stats.num_dropped_rows, 1);

  request.params.stop = {"e t"};
  const Answers stopped = expect_same({request}, device);
  EXPECT_EQ(stopped.outputs.at(1).choices[0].text, "on");
  EXPECT_EQ(stopped.outputs.at(1).choices[0].token_ids, letters("one t"));
  EXPECT_EQ(stopped.stats.num_dropped_rows, 1);

  request.params.stop = {};
  request.params.stop_token_ids = letters("w");
  EXPECT_EQ(expect_same({request}, device).stats.num_dropped_rows, 1);

  request.params.stop_token_ids = {};
  request.params.max_tokens = 6;
  EXPECT_EQ(expect_same({request}, device).stats.num_dropped_rows, 0);
}

TEST_P(EngineAheadTest, WhatIsCancelledLosesARowAndItsBlocks) {
  ScriptedRunner runner(device());
  Engine engine(options_, &runner, &tokenizer_);
  std::vector<Request> requests;
  for (RequestId id = 1; id <= 3; ++id) {
    requests.push_back(make_request(id, letters("abcde"), 20));
    requests.back().prompt.push_back(static_cast<TokenId>(id));
    requests.back().params.ignore_eos = true;
    engine.add(requests.back());
  }
  for (int i = 0; i < 4; ++i) engine.step();
  engine.cancel(2);
  EXPECT_EQ(engine.stats().num_running, 2);
  // Its blocks may go to others at once: what they compute comes behind the row that is lost.
  engine.add(make_request(4, letters("abcdefgh"), 9));
  Outputs outputs = finish(engine);
  EXPECT_EQ(outputs[2].choices[0].finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(engine.stats().num_dropped_rows, 1);
  EXPECT_EQ(engine.stats().num_rows, expected_rows(outputs));
  for (const RequestId id : {1u, 3u}) {
    expect_same_result(outputs[id], run_alone(requests[id - 1], options_, &tokenizer_));
  }
  expect_same_result(outputs[4],
                     run_alone(make_request(4, letters("abcdefgh"), 9), options_, &tokenizer_));
  expect_all_blocks_back(engine);
}

TEST_P(EngineAheadTest, ACancelledLastRequestLeavesNothingUnderWay) {
  ScriptedRunner runner(device());
  Engine engine(options_, &runner, &tokenizer_);
  engine.add(make_request(1, letters("abc"), 20));
  engine.step();
  engine.cancel(1);
  expect_all_blocks_back(engine);
  EXPECT_EQ(finish(engine).size(), 1u);
  EXPECT_EQ(runner.num_under_way(), 0);
  EXPECT_FALSE(engine.has_work());
}

TEST_P(EngineAheadTest, BrokenLogitsFailTheirRequestOnly) {
  class PoisonedRunner : public ScriptedRunner {
   public:
    using ScriptedRunner::ScriptedRunner;
    void forward(const Batch& batch, std::span<float> logits) override {
      ScriptedRunner::forward(batch, logits);
      // Of the sequence that begins with "x", from its fifth token on.
      for (std::size_t s = 0; s < batch.context_lens.size(); ++s) {
        const auto last = static_cast<std::size_t>(batch.cu_seqlens[s + 1]) - 1;
        if (batch.positions[last] >= 5 && batch.token_ids[last] % 2 == 0) {
          logits[s * 64 + 7] = std::nanf("");
        }
      }
    }
  };
  ScriptedRunnerOptions options = device();
  options.script = [](std::span<const TokenId> context) {
    return context.front() == letters("x")[0] ? 2 : 3;
  };
  PoisonedRunner runner(options);
  Engine engine(options_, &runner, &tokenizer_);
  engine.add(make_request(1, letters("xyz"), 9));
  engine.add(make_request(2, letters("abc"), 9));
  Outputs outputs = finish(engine);
  EXPECT_NE(outputs[1].error, "");
  EXPECT_EQ(outputs[1].num_completion_tokens, 3);
  EXPECT_EQ(outputs[2].choices[0].token_ids, std::vector<TokenId>(9, 3));
  EXPECT_EQ(engine.stats().num_dropped_rows, 1);
  expect_all_blocks_back(engine);
}

// The row that is lost stood for a token that the answer has, but its KV is never found again.
TEST_P(EngineAheadTest, PrefixesEndWhereTheyDoWithoutLostRows) {
  for (std::size_t prompt_size = 1; prompt_size <= 8; ++prompt_size) {
    for (std::size_t reply_size = 0; reply_size <= 9; ++reply_size) {
      SCOPED_TRACE(std::to_string(prompt_size) + " and " + std::to_string(reply_size));
      const auto prompt = letters(std::string_view("abcdefgh").substr(0, prompt_size));
      const auto reply = letters(std::string_view("qrstuvwxy").substr(0, reply_size));
      ScriptedRunnerOptions device = this->device();
      device.script = writes(prompt_size, reply);
      std::vector<std::int32_t> cached[2];
      for (const bool runs_ahead : {false, true}) {
        options_.runs_ahead = runs_ahead;
        ScriptedRunner runner(device);
        Engine engine(options_, &runner, &tokenizer_);
        engine.add(make_request(1, prompt, 20));
        finish(engine);
        // Everything that was said, the end included, and how it could go on.
        Request next = make_request(2, prompt, 4);
        next.prompt.insert(next.prompt.end(), reply.begin(), reply.end());
        next.prompt.push_back(kEndToken);
        next.prompt.insert(next.prompt.end(), 4, 5);
        for (std::size_t size = 1; size <= next.prompt.size(); ++size) {
          cached[runs_ahead].push_back(
              engine.cached_prefix_tokens(std::span(next.prompt).first(size)));
        }
        engine.add(next);
        const Outputs outputs = finish(engine);
        cached[runs_ahead].push_back(outputs.at(2).num_cached_tokens);
        EXPECT_EQ(outputs.at(2).choices[0].token_ids, std::vector<TokenId>{kEndToken});
        EXPECT_EQ(engine.stats().num_dropped_rows, runs_ahead ? 2 : 0);
        expect_all_blocks_back(engine);
      }
      EXPECT_EQ(cached[1], cached[0]);
    }
  }
}

TEST_P(EngineAheadTest, ManySequencesEndWhereTheyDoInAnEngineThatWaits) {
  std::vector<Request> requests;
  std::mt19937 random(3);
  for (RequestId id = 0; id < 40; ++id) {
    Request request = make_request(id, letters("abcdefghi"), 1 + static_cast<int>(random() % 30));
    request.prompt.resize(1 + random() % 9);
    request.prompt.push_back(static_cast<TokenId>(random() % 5));
    request.params.temperature = id % 3 == 0 ? 0.0f : 0.9f;
    request.params.seed = id;
    if (id % 5 == 1) request.params.stop = {"a"};
    if (id % 7 == 2) request.params.repetition_penalty = 1.3f;
    if (id % 7 == 3) request.params.frequency_penalty = 0.7f;
    if (id % 7 == 4) request.params.min_tokens = 4;
    if (id % 8 == 5) request.num_choices = 3;
    requests.push_back(std::move(request));
  }
  Answers answers = expect_same(requests, device());
  EXPECT_GT(answers.steps_ahead, answers.totals.steps / 2);
  EXPECT_GT(answers.stats.num_dropped_rows, 5);
  EXPECT_EQ(answers.stats.num_preemptions, 0);

  ScriptedRunnerOptions small = device();
  small.num_blocks = 30;
  answers = expect_same(requests, small);
  EXPECT_GT(answers.stats.num_preemptions, 0);
  EXPECT_GT(answers.steps_ahead, 10);
}

TEST_P(EngineAheadTest, ArrivalsJoinStepsThatAreBegunAhead) {
  ScriptedRunnerOptions device = this->device();
  device.num_blocks = 512;
  ScriptedRunner runner(device);
  Engine engine(options_, &runner, &tokenizer_);
  std::vector<Request> requests;
  Outputs outputs;
  for (RequestId id = 0; id < 6; ++id) {
    // Longer than a step, so that prompts come in chunks.
    Request request = make_request(id, std::vector<TokenId>(50, static_cast<TokenId>(id)), 10);
    request.params.ignore_eos = true;
    requests.push_back(request);
    engine.add(std::move(request));
    for (int i = 0; i < 3; ++i) {
      for (RequestOutput& output : engine.step().finished) outputs[output.id] = std::move(output);
    }
  }
  for (auto& [id, output] : finish(engine)) outputs[id] = std::move(output);
  EXPECT_EQ(runner.num_steps_ahead(), runner.num_steps() - 1);
  EXPECT_EQ(engine.stats().num_dropped_rows, 0);
  for (const Request& request : requests) {
    expect_same_result(outputs[request.id], run_alone(request, options_, &tokenizer_));
  }
}

TEST_P(EngineAheadTest, TokensThatTheHostChoosesAreWaitedFor) {
  Request request = make_request(1, letters("abc"), 8);
  request.params.logprobs = 1;
  EXPECT_EQ(expect_same({request}, device()).steps_ahead, 0);
}

// Of two steps under way either may be the one that fails.
TEST_P(EngineAheadTest, AFailureIsSeenOnceAndCountsNothing) {
  std::vector<Request> requests;
  for (RequestId id = 1; id <= 5; ++id) {
    requests.push_back(make_request(id, letters("abcdefghij"), 3 + static_cast<int>(id)));
    requests.back().prompt.push_back(static_cast<TokenId>(id));
    requests.back().params.presence_penalty = 0.5f;
    requests.back().num_choices = id == 3 ? 3 : 1;
  }
  const Answers whole = run(requests, device(), true);
  for (std::int64_t failing = 0; failing < whole.num_steps; ++failing) {
    SCOPED_TRACE(failing);
    ScriptedRunnerOptions device = this->device();
    std::int64_t failures = 0;
    device.before_step = [&](std::int64_t step) {
      if (step != failing) return;
      ++failures;
      throw InjectedFailure();
    };
    ScriptedRunner runner(device);
    Engine engine(options_, &runner, &tokenizer_);
    for (const Request& request : requests) engine.add(request);
    Outputs outputs;
    std::int64_t seen = 0;
    while (engine.has_work()) {
      try {
        for (RequestOutput& output : engine.step().finished) outputs[output.id] = std::move(output);
      } catch (const InjectedFailure&) {
        ++seen;
        EXPECT_EQ(runner.num_under_way(), 0);
      }
    }
    EXPECT_EQ(failures, 1);
    EXPECT_EQ(seen, 1);
    EXPECT_EQ(engine.stats().num_rows, expected_rows(outputs));
    expect_all_blocks_back(engine);
    for (const Request& request : requests) {
      expect_same_result(outputs[request.id], whole.outputs.at(request.id));
      if (request.num_choices == 1) EXPECT_EQ(outputs[request.id].num_recomputed_tokens, 0);
    }
  }
}

TEST_P(EngineAheadTest, AStepWithoutMemoryBehindAnotherIsMadeSmaller) {
  ScriptedRunnerOptions device = this->device();
  device.max_rows = 5;
  ScriptedRunner runner(device);
  options_.max_num_batched_tokens = 10;
  Engine engine(options_, &runner, &tokenizer_);
  const std::vector<Request> requests = {make_request(1, letters("abc"), 12),
                                         make_request(2, letters("klmnopqrst"), 12)};
  engine.add(requests[0]);
  engine.step();
  engine.add(requests[1]);
  // A decode and nine rows of the prompt, behind a decode that is under way.
  EXPECT_THROW(engine.step(), std::bad_alloc);
  EXPECT_EQ(runner.num_under_way(), 0);
  EXPECT_EQ(engine.shrink_steps(), 5);
  Outputs outputs = finish(engine);
  for (const Request& request : requests) {
    expect_same_result(outputs[request.id], run_alone(request, options_, &tokenizer_));
  }
}

TEST_P(EngineAheadTest, AnEngineThatGoesLeavesTheRunnerFree) {
  ScriptedRunner runner(device());
  const Request request = make_request(1, letters("abcdef"), 7);
  {
    Engine engine(options_, &runner, &tokenizer_);
    engine.add(request);
    engine.step();
    EXPECT_EQ(runner.num_under_way(), 1);
  }
  EXPECT_EQ(runner.num_under_way(), 0);
  Engine engine(options_, &runner, &tokenizer_);
  engine.add(request);
  expect_same_result(finish(engine)[1], run_alone(request, options_, &tokenizer_));
}

INSTANTIATE_TEST_SUITE_P(Devices, EngineAheadTest, ::testing::Bool(), [](const auto& test) {
  return test.param ? "FasterThanTheHost" : "SlowerThanTheHost";
});

}  // namespace
}  // namespace batchmill::testing
