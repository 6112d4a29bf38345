// What a KV pool that is far smaller than the prefixes of a file costs, by count.
#include "tests/engine/engine_harness.h"

namespace batchmill::testing {
namespace {

constexpr std::int32_t kBlockSize = 16;

struct File {
  int num_families = 0;
  int lines = 0;  // of each
  int shared_tokens = 0;
  int own_tokens = 0;
  int first_token = 0;  // tells the families of two files apart
};

std::vector<std::vector<TokenId>> prompts_of(const File& file) {
  std::mt19937 random(11);
  const auto grow = [&](std::vector<TokenId>& prompt, int size) {
    while (static_cast<int>(prompt.size()) < size) {
      prompt.push_back(std::uniform_int_distribution(0, 59)(random));
    }
  };
  std::vector<TokenId> base = {static_cast<TokenId>(file.first_token)};
  grow(base, 30);
  std::vector<std::vector<TokenId>> prompts;
  for (int family = 0; family < file.num_families; ++family) {
    std::vector<TokenId> system = base;
    grow(system, file.shared_tokens);
    for (int line = 0; line < file.lines; ++line) {
      prompts.push_back(system);
      grow(prompts.back(), file.shared_tokens + file.own_tokens);
    }
  }
  std::ranges::sort(prompts);
  return prompts;
}

// How much the prompt shares with the one behind it, as a plan in this order knows; -1 for the
// last.
std::int32_t shared_with_next(const std::vector<std::vector<TokenId>>& prompts, std::size_t i) {
  if (i + 1 == prompts.size()) return -1;
  const auto end = std::ranges::mismatch(prompts[i], prompts[i + 1]).in1;
  return static_cast<std::int32_t>(end - prompts[i].begin());
}

EngineOptions options_of_a_daemon() {
  EngineOptions options = small_engine();
  options.max_num_seqs = 64;
  options.max_num_batched_tokens = 2048;
  options.max_context_tokens = 2048;
  options.generation_reserve_tokens = 64;
  return options;
}

struct FileRun {
  double computed = 0.0;  // prefill rows ÷ trie bound
  std::int64_t evictions = 0;  // at least: rows that no longer have a place
};

FileRun run_file(const std::vector<std::vector<TokenId>>& prompts, std::int32_t pool_tokens) {
  ScriptedRunner runner({.block_size_tokens = kBlockSize, .num_blocks = pool_tokens / kBlockSize});
  Engine engine(options_of_a_daemon(), &runner, nullptr);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    Request request = make_request(i, prompts[i], 48);
    request.params.ignore_eos = true;
    request.num_wanted_tokens = shared_with_next(prompts, i);
    engine.add(std::move(request));
  }
  Totals totals;
  finish(engine, &totals);
  const auto bound = static_cast<double>(trie_bound(prompts));
  return {static_cast<double>(totals.prefill_rows) / bound, totals.rows - pool_tokens};
}

TEST(EvictionTest, ComputesAFamilyOnceOnAPoolOfAThirdOfAllFamilies) {
  const File file{.num_families = 24, .lines = 8, .shared_tokens = 490, .own_tokens = 423};
  const FileRun run = run_file(prompts_of(file), 24 * 490 / 3);
  EXPECT_LE(run.computed, 1.02);
  EXPECT_GT(run.evictions, 50'000);
}

TEST(EvictionTest, ComputesOneSharedPromptOnce) {
  const File file{.num_families = 1, .lines = 128, .shared_tokens = 500, .own_tokens = 427};
  const FileRun run = run_file(prompts_of(file), 4'000);
  EXPECT_LE(run.computed, 1.01);
  EXPECT_GT(run.evictions, 40'000);
}

// Two cursors take turns: many lines without a common prompt between two of a family. Least
// recently used alone gives the family's prompt up each time.
TEST(EvictionTest, KeepsWhatALaterLineBeginsWithBeforeWhatNobodyDoes) {
  const auto family = prompts_of(
      {.num_families = 1, .lines = 20, .shared_tokens = 480, .own_tokens = 20, .first_token = 1});
  const auto others = prompts_of(
      {.num_families = 400, .lines = 1, .shared_tokens = 30, .own_tokens = 300, .first_token = 2});
  const auto rows = [&](bool with_knowledge) {
    ScriptedRunner runner({.block_size_tokens = kBlockSize, .num_blocks = 4'000 / kBlockSize});
    EngineOptions options = options_of_a_daemon();
    options.max_num_seqs = 4;
    Engine engine(options, &runner, nullptr);
    RequestId id = 0;
    const auto add = [&](const std::vector<std::vector<TokenId>>& prompts, std::size_t i) {
      Request request = make_request(id++, prompts[i], 2);
      request.params.ignore_eos = true;
      if (with_knowledge) request.num_wanted_tokens = shared_with_next(prompts, i);
      engine.add(std::move(request));
    };
    for (std::size_t i = 0; i < family.size(); ++i) {
      add(family, i);
      for (std::size_t j = 0; j < 20; ++j) add(others, i * 20 + j);
    }
    Totals totals;
    finish(engine, &totals);
    return totals.prefill_rows;
  };
  const auto bound = static_cast<double>(trie_bound(family) + trie_bound(others));
  EXPECT_LE(static_cast<double>(rows(true)), 1.001 * bound);
  EXPECT_GT(static_cast<double>(rows(false)), 1.05 * bound);
}

// The last line of a family says that nobody follows, also while older ones still run.
TEST(EvictionTest, GivesUpAFamilyWhoseLastLineHasCome) {
  ScriptedRunner runner({.block_size_tokens = kBlockSize, .num_blocks = 20});
  Engine engine(options_of_a_daemon(), &runner, nullptr);
  const auto add = [&](RequestId id, TokenId family, std::int32_t wanted) {
    std::vector<TokenId> prompt(64, family);
    prompt.push_back(static_cast<TokenId>(id));
    Request request = make_request(id, std::move(prompt), id == 0 ? 12 : 2);
    request.params.ignore_eos = true;
    request.num_wanted_tokens = wanted;
    engine.add(std::move(request));
  };
  add(0, 1, 64);
  add(1, 1, 0);  // ends before the first
  finish(engine);
  add(2, 2, 64);
  finish(engine);
  // Used later than the second family's, but nothing begins with it any more.
  EXPECT_EQ(engine.cached_prefix_tokens(std::vector<TokenId>(65, 1)), 64);
  add(3, 3, 64);
  add(4, 4, 64);
  add(5, 5, 64);
  finish(engine);
  EXPECT_EQ(engine.cached_prefix_tokens(std::vector<TokenId>(65, 1)), 0);
  EXPECT_EQ(engine.cached_prefix_tokens(std::vector<TokenId>(65, 2)), 64);
}

}  // namespace
}  // namespace batchmill::testing
