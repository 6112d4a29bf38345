// Random mixes of requests on small pools: whatever shares, waits, is preempted, cancelled or
// rolled back, and wherever tokens are drawn, each request's result is what it gives alone.
#include "tests/engine/engine_harness.h"

namespace batchmill::testing {
namespace {

class RequestMix {
 public:
  explicit RequestMix(std::uint32_t seed) : random_(seed) {
    for (auto& family : families_) family = tokens(pick(1, 30));
  }

  int pick(int low, int high) { return std::uniform_int_distribution(low, high)(random_); }
  bool chance(int percent) { return pick(1, 100) <= percent; }

  Request next(RequestId id) {
    const auto& family = families_[static_cast<std::size_t>(pick(0, 2))];
    const auto kept = static_cast<std::ptrdiff_t>(pick(1, static_cast<int>(family.size())));
    std::vector<TokenId> prompt(family.begin(), family.begin() + kept);
    if (chance(80)) {
      const auto tail = tokens(pick(1, 20));
      prompt.insert(prompt.end(), tail.begin(), tail.end());
    }
    Request request = make_request(id, std::move(prompt), pick(1, 24));
    SamplingParams& params = request.params;
    if (chance(70)) params.temperature = 0.8f;
    params.seed = static_cast<std::uint64_t>(pick(0, 3));
    if (chance(25)) request.num_choices = pick(2, 6);
    if (chance(20)) params.top_k = pick(1, 20);
    if (chance(20)) params.top_p = 0.7f;
    if (chance(10)) params.min_p = 0.1f;
    if (chance(10)) params.repetition_penalty = 1.2f;
    if (chance(10)) params.presence_penalty = 0.5f;
    if (chance(10)) params.logit_bias = {{pick(0, 63), 3.0f}, {1, -2.0f}};
    if (chance(20)) params.logprobs = pick(0, 3);
    if (chance(15)) params.prompt_logprobs = true;
    if (chance(10)) params.min_tokens = pick(1, 8);
    if (chance(15)) params.stop = {"a", "STOP"};
    if (chance(10)) params.stop_token_ids = {5, 6};
    if (chance(10)) params.ignore_eos = true;
    if (chance(5)) params.max_tokens = 0;
    return request;
  }

 private:
  std::vector<TokenId> tokens(int count) {
    std::vector<TokenId> result;
    for (int i = 0; i < count; ++i) result.push_back(pick(0, 2));  // few: much is shared by chance
    return result;
  }

  std::mt19937 random_;
  std::array<std::vector<TokenId>, 3> families_;
};

struct MixCase {
  std::int32_t num_blocks;
  std::int32_t block_size;
  std::int32_t max_num_seqs;
  std::int32_t max_num_batched_tokens;
  int failure_percent;
  int cancel_percent;
};

class EngineMixTest : public ::testing::TestWithParam<MixCase> {};

TEST_P(EngineMixTest, GivesEachRequestItsResultOfBeingAlone) {
  const MixCase& mix = GetParam();
  const LetterTokenizer tokenizer;
  EngineOptions options = small_engine();
  options.max_num_seqs = mix.max_num_seqs;
  options.max_num_batched_tokens = mix.max_num_batched_tokens;
  std::int64_t preemptions = 0;
  std::int64_t failures = 0;
  std::int64_t draws = 0;
  std::int64_t steps_ahead = 0;
  std::int64_t dropped_rows = 0;
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RequestMix requests(seed);
    ScriptedRunner runner({.block_size_tokens = mix.block_size,
                           .num_blocks = mix.num_blocks,
                           .draws_tokens = seed % 4 != 0,
                           .is_eager = seed % 4 == 3,
                           .before_step = [&](std::int64_t) {
                             if (!requests.chance(mix.failure_percent)) return;
                             ++failures;
                             throw InjectedFailure();
                           }});
    Engine engine(options, &runner, &tokenizer);
    options.max_context_tokens = engine.max_sequence_tokens();
    std::map<RequestId, Request> added;
    std::set<RequestId> cancelled;
    Outputs outputs;
    for (int turn = 0; added.size() < 40 || engine.has_work(); ++turn) {
      ASSERT_LT(turn, 20'000) << "no progress";
      if (added.size() < 40 && requests.chance(40)) {
        Request request = requests.next(added.size());
        added.emplace(request.id, request);
        engine.add(std::move(request));
      }
      if (!added.empty() && requests.chance(mix.cancel_percent)) {
        const auto id =
            static_cast<RequestId>(requests.pick(0, static_cast<int>(added.size()) - 1));
        engine.cancel(id);
        cancelled.insert(id);
      }
      try {
        for (RequestOutput& output : engine.step().finished) {
          ASSERT_FALSE(outputs.contains(output.id)) << "finished twice";
          outputs[output.id] = std::move(output);
        }
      } catch (const InjectedFailure&) {
      }
    }
    expect_all_blocks_back(engine);
    const EngineStats stats = engine.stats();
    EXPECT_EQ(stats.num_rows + stats.num_dropped_rows, runner.num_rows());
    steps_ahead += runner.num_steps_ahead();
    dropped_rows += stats.num_dropped_rows;
    EXPECT_EQ(stats.num_rows, stats.num_prefill_rows + stats.num_decode_rows);
    preemptions += stats.num_preemptions;
    draws += runner.num_draws();
    ASSERT_EQ(outputs.size(), added.size());
    for (const auto& [id, request] : added) {
      const RequestOutput& output = outputs[id];
      if (std::ranges::any_of(output.choices, [](const Choice& choice) {
            return choice.finish_reason == FinishReason::kCancelled;
          })) {
        EXPECT_TRUE(cancelled.contains(id));
        continue;
      }
      expect_same_result(output, run_alone(request, options, &tokenizer));
      EXPECT_GE(output.num_cached_tokens, 0);
      const bool computes = request.params.max_tokens > 0 || request.params.prompt_logprobs;
      EXPECT_LE(output.num_cached_tokens, output.num_prompt_tokens - (computes ? 1 : 0));
      if (request.params.prompt_logprobs) {
        EXPECT_EQ(output.num_cached_tokens, 0);
      }
      if (output.num_preemptions == 0 && request.num_choices == 1) {
        EXPECT_EQ(output.num_recomputed_tokens, 0);
      }
      if (HasFailure()) return;
    }
    EXPECT_EQ(stats.num_rows, expected_rows(outputs));
  }
  EXPECT_GT(draws, 0);
  EXPECT_GT(steps_ahead, 0);
  EXPECT_GT(dropped_rows, 0);
  if (mix.num_blocks * mix.block_size <= 100 && mix.max_num_batched_tokens >= mix.max_num_seqs) {
    EXPECT_GT(preemptions, 0);
  }
  if (mix.failure_percent > 0) {
    EXPECT_GT(failures, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Pools, EngineMixTest,
    ::testing::Values(MixCase{512, 4, 8, 64, 0, 0}, MixCase{512, 4, 8, 64, 10, 5},
                      MixCase{25, 4, 8, 32, 0, 0}, MixCase{25, 4, 8, 32, 10, 5},
                      MixCase{19, 4, 8, 16, 20, 0}, MixCase{96, 1, 8, 32, 10, 5},
                      MixCase{7, 16, 8, 32, 10, 5}, MixCase{25, 4, 8, 3, 10, 5},
                      MixCase{40, 4, 1, 8, 5, 5}, MixCase{19, 4, 8, 1, 0, 0},
                      MixCase{5, 16, 3, 40, 10, 2}),
    [](const ::testing::TestParamInfo<MixCase>& param) {
      const MixCase& mix = param.param;
      return std::to_string(mix.num_blocks) + "x" + std::to_string(mix.block_size) + "_seqs" +
             std::to_string(mix.max_num_seqs) + "_rows" +
             std::to_string(mix.max_num_batched_tokens) + "_fail" +
             std::to_string(mix.failure_percent) + "_cancel" + std::to_string(mix.cancel_percent);
    });

}  // namespace
}  // namespace batchmill::testing
