// How much the engine computes: prefixes once, and everything to its end on the smallest pool.
#include "tests/engine/engine_harness.h"

namespace batchmill::testing {
namespace {

std::vector<TokenId> random_tokens(std::mt19937* random, int low, int high, TokenId vocab = 60) {
  std::vector<TokenId> tokens(
      static_cast<std::size_t>(std::uniform_int_distribution(low, high)(*random)));
  for (TokenId& token : tokens) token = std::uniform_int_distribution(0, vocab - 1)(*random);
  return tokens;
}

std::vector<TokenId> joined(std::vector<TokenId> head, const std::vector<TokenId>& tail) {
  head.insert(head.end(), tail.begin(), tail.end());
  return head;
}

struct WorkCase {
  const char* name;
  std::int32_t block_size;
  std::int32_t max_num_batched_tokens;
  int num_families;
  bool backwards;
};

class PrefixWorkTest : public ::testing::TestWithParam<WorkCase> {};

TEST_P(PrefixWorkTest, ComputesEachDistinctPrefixTokenOnce) {
  const WorkCase& work = GetParam();
  std::mt19937 random(3);
  std::vector<std::vector<TokenId>> prompts;
  for (int family = 0; family < work.num_families; ++family) {
    const auto system = random_tokens(&random, 60, 130);
    const auto group = random_tokens(&random, 5, 30);
    for (int line = 0; line < 128 / work.num_families; ++line) {
      const auto tail = random_tokens(&random, 0, 40, 6);
      prompts.push_back(joined(line % 3 == 0 ? joined(system, group) : system, tail));
    }
    prompts.push_back(system);  // a prefix of the others
    prompts.push_back(prompts.back());
  }
  if (work.backwards) std::ranges::reverse(prompts);

  EngineOptions options = small_engine();
  options.max_num_seqs = 16;
  options.max_num_batched_tokens = work.max_num_batched_tokens;
  options.max_context_tokens = 512;
  ScriptedRunner runner(
      {.block_size_tokens = work.block_size, .num_blocks = 40'000 / work.block_size});
  Engine engine(options, &runner, nullptr);
  std::int64_t prompt_tokens = 0;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    prompt_tokens += static_cast<std::int64_t>(prompts[i].size());
    engine.add(make_request(i, prompts[i], 5));
  }
  Totals totals;
  const Outputs outputs = finish(engine, &totals);
  // A prompt that ends inside others computes its last token for them, if it comes first.
  EXPECT_LE(totals.prefill_rows, trie_bound(prompts));
  EXPECT_GE(totals.prefill_rows, least_rows(prompts));
  EXPECT_EQ(totals.rows, expected_rows(outputs));
  EXPECT_EQ(totals.rows, runner.num_rows());
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.prefix_queries_tokens, prompt_tokens);
  EXPECT_EQ(stats.prefix_hits_tokens, prompt_tokens - totals.prefill_rows);
  EXPECT_EQ(stats.num_preemptions, 0);
}

INSTANTIATE_TEST_SUITE_P(Files, PrefixWorkTest,
                         ::testing::Values(WorkCase{"OneFamily", 16, 2048, 1, false},
                                           WorkCase{"OneFamilySmallSteps", 16, 50, 1, false},
                                           WorkCase{"FourFamilies", 16, 256, 4, false},
                                           WorkCase{"ManyFamilies", 16, 512, 32, false},
                                           WorkCase{"Backwards", 16, 256, 4, true},
                                           WorkCase{"SmallBlocks", 4, 256, 4, false},
                                           WorkCase{"BlocksOfOne", 1, 256, 4, false}),
                         [](const ::testing::TestParamInfo<WorkCase>& param) {
                           return param.param.name;
                         });

TEST(EngineWorkTest, MixedLinesFinishOnAPoolLittleLargerThanTheLongest) {
  for (const std::int32_t block_size : {4, 16}) {
    std::mt19937 random(5);
    const std::int32_t longest = 320;
    EngineOptions options = small_engine();
    options.max_num_seqs = 64;
    options.max_num_batched_tokens = 128;
    options.max_context_tokens = longest;
    ScriptedRunner runner(
        {.block_size_tokens = block_size, .num_blocks = longest * 12 / 10 / block_size});
    Engine engine(options, &runner, nullptr);
    std::map<RequestId, Request> requests;
    for (RequestId id = 0; id < 64; ++id) {
      auto prompt = random_tokens(&random, 1, id % 8 == 0 ? 280 : 60);
      auto request = make_request(id, std::move(prompt), 10 + static_cast<std::int32_t>(id));
      if (id % 16 == 1) request.params.max_tokens = longest;
      request.params.ignore_eos = true;
      engine.add(request);
      requests.emplace(id, std::move(request));
    }
    Totals totals;
    Outputs outputs = finish(engine, &totals);
    ASSERT_EQ(outputs.size(), 64u);
    for (const auto& [id, request] : requests) {
      expect_same_result(outputs[id], run_alone(request, options, nullptr));
    }
    EXPECT_EQ(totals.rows, expected_rows(outputs));
    EXPECT_GT(engine.stats().num_preemptions, 0);
    expect_all_blocks_back(engine);
  }
}

TEST(EngineWorkTest, AFreedSlotIsRefilledInTheNextStep) {
  EngineOptions options = small_engine();
  options.max_num_seqs = 2;
  ScriptedRunner runner({.num_blocks = 200});
  Engine engine(options, &runner, nullptr);
  for (RequestId id = 0; id < 10; ++id) {
    auto request = make_request(id, {static_cast<TokenId>(id), 1, 2}, 4);
    request.params.ignore_eos = true;
    engine.add(request);
  }
  Totals totals;
  finish(engine, &totals);
  // Five pairs of four tokens each, one token a step: no step is lost between them.
  EXPECT_EQ(totals.steps, 20);
}

TEST(EngineWorkTest, AdmitsInTheOrderOfAddAndByNeed) {
  EngineOptions options = small_engine();
  options.generation_reserve_tokens = 8;
  ScriptedRunner runner({.num_blocks = 16});  // 64 tokens
  Engine engine(options, &runner, nullptr);
  const auto add = [&](RequestId id, std::size_t size) {
    auto request = make_request(id, std::vector<TokenId>(size, static_cast<TokenId>(id)), 8);
    request.params.ignore_eos = true;
    engine.add(request);
  };
  add(1, 20);
  add(2, 40);  // with its reserve it does not fit beside the first
  add(3, 4);  // would fit, but comes later
  engine.step();
  engine.step();
  EXPECT_EQ(engine.stats().num_running, 1);
  EXPECT_EQ(engine.stats().num_waiting, 2);
  std::vector<RequestId> order;
  while (engine.has_work()) {
    for (const RequestOutput& output : engine.step().finished) order.push_back(output.id);
  }
  EXPECT_EQ(order, (std::vector<RequestId>{1, 2, 3}));
  EXPECT_EQ(engine.stats().num_preemptions, 0);
}

TEST(EngineWorkTest, APreemptedSequenceKeepsWhatTheTreeKeeps) {
  EngineOptions options = small_engine();
  options.generation_reserve_tokens = 0;
  options.max_num_seqs = 2;
  ScriptedRunner runner({.num_blocks = 12});  // 48 tokens
  Engine engine(options, &runner, nullptr);
  for (RequestId id = 0; id < 2; ++id) {
    auto request = make_request(id, std::vector<TokenId>(16, static_cast<TokenId>(id)), 20);
    request.params.ignore_eos = true;
    engine.add(request);
  }
  Outputs outputs = finish(engine);
  EXPECT_EQ(outputs[0].num_preemptions, 0);
  EXPECT_EQ(outputs[1].num_preemptions, 1);
  // Only the blocks that the first one's growth evicted are computed again.
  EXPECT_GT(outputs[1].num_recomputed_tokens, 0);
  EXPECT_LE(outputs[1].num_recomputed_tokens, 16);
  EXPECT_EQ(outputs[1].num_cached_tokens, 0);
}

TEST(EngineWorkTest, LaterLinesOfAFamilyWaitOneStepForTheRestOfABlock) {
  // 18 shared tokens, blocks of 16: the last two can only be copied once they are computed.
  std::mt19937 random(1);
  const auto system = random_tokens(&random, 18, 18);
  EngineOptions options = small_engine();
  options.max_num_batched_tokens = 256;
  ScriptedRunner runner({.block_size_tokens = 16});
  Engine engine(options, &runner, nullptr);
  for (RequestId id = 0; id < 4; ++id) {
    engine.add(make_request(id, joined(system, {static_cast<TokenId>(id), 1, 2}), 3));
  }
  EXPECT_EQ(engine.step().num_tokens, 21);
  EXPECT_EQ(engine.step().num_tokens, 1 + 3 * 3);
  EXPECT_EQ(runner.num_copies(), 3);
}

}  // namespace
}  // namespace batchmill::testing
