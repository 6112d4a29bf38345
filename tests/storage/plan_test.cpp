#include "storage/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "tests/storage/store_fixture.h"

namespace batchmill {
namespace {

using Ids = std::vector<std::int32_t>;

// A trie over prompts; the walk visits a node's own prompts first, then its children by id.
struct Trie {
  std::map<std::int32_t, Trie> children;
  std::vector<std::uint64_t> lines;

  void add(const Ids& ids, std::uint64_t line) {
    Trie* node = this;
    for (std::int32_t id : ids) node = &node->children[id];
    node->lines.push_back(line);
  }
  void walk(std::vector<std::uint64_t>& out) const {
    out.insert(out.end(), lines.begin(), lines.end());
    for (const auto& [id, child] : children) child.walk(out);
  }
};

Ids random_ids(std::mt19937_64& random, std::size_t max_size) {
  Ids ids(random() % (max_size + 1));
  for (std::int32_t& id : ids) {
    // Few values, so that prefixes are shared; some use all three bytes.
    id = static_cast<std::int32_t>(random() % 3 == 0 ? 70'000 * (random() % 3) : random() % 3);
  }
  return ids;
}

TEST(PlanKeyTest, OrderIsDepthFirstThroughTheTrie) {
  std::mt19937_64 random(5);
  Trie trie;
  std::vector<std::pair<PlanKey, std::uint64_t>> sorted;
  for (std::uint64_t line = 1; line <= 3'000; ++line) {
    const Ids ids = random_ids(random, 12);
    trie.add(ids, line);
    sorted.emplace_back(make_plan_key(make_entry({}, line, ids)), line);
  }
  std::ranges::sort(sorted);
  std::vector<std::uint64_t> expected;
  trie.walk(expected);
  std::vector<std::uint64_t> actual;
  for (const auto& [key, line] : sorted) actual.push_back(line);
  EXPECT_EQ(actual, expected);
}

TEST(PlanKeyTest, SortsByLevelThenLaneThenFingerprint) {
  PlanEntry entry = make_entry({}, 1, {5});
  entry.priority = 10;
  const PlanKey high = make_plan_key(entry);
  entry.priority = 9;
  entry.short_lane = true;
  const PlanKey short_lane = make_plan_key(entry);
  entry.short_lane = false;
  const PlanKey normal_lane = make_plan_key(entry);
  entry.fingerprint = "1123456789abcdef";
  const PlanKey other_model = make_plan_key(entry);
  entry.priority = -10;
  const PlanKey low = make_plan_key(entry);
  EXPECT_LT(high, short_lane);
  EXPECT_LT(short_lane, normal_lane);
  EXPECT_LT(normal_lane, other_model);
  EXPECT_LT(other_model, low);
  const auto level = plan_level_of(low);
  ASSERT_TRUE(level);
  EXPECT_EQ(level->priority, -10);
  EXPECT_EQ(level->fingerprint, "1123456789abcdef");
  EXPECT_LE(level->first, low);
  EXPECT_GT(level->limit, low);
}

TEST(PlanKeyTest, TellsCommonPrefixes) {
  std::mt19937_64 random(6);
  for (int i = 0; i < 2'000; ++i) {
    const Ids a = random_ids(random, 9);
    const Ids b = random_ids(random, 9);
    std::uint32_t expected = 0;
    while (expected < a.size() && expected < b.size() && a[expected] == b[expected]) ++expected;
    EXPECT_EQ(common_prefix_tokens(make_plan_key(make_entry({}, 1, a)),
                                   make_plan_key(make_entry({}, 2, b))),
              expected);
  }
  Ids a(1024 + 64 * 3 + 10, 7);
  const auto common = [&](const Ids& b) {
    return common_prefix_tokens(make_plan_key(make_entry({}, 1, a)),
                                make_plan_key(make_entry({}, 2, b)));
  };
  EXPECT_EQ(common(a), 1024u + 64 * 3);
  Ids b = a;
  b[1024 + 64 + 5] = 8;
  EXPECT_EQ(common(b), 1024u + 64);
  b[1000] = 8;
  EXPECT_EQ(common(b), 1000u);
  EXPECT_EQ(common(Ids(1024, 7)), 1024u);
  EXPECT_EQ(common(Ids(1023, 7)), 1023u);
  PlanEntry other = make_entry({}, 2, a);
  other.fingerprint = "f123456789abcdef";
  EXPECT_EQ(common_prefix_tokens(make_plan_key(make_entry({}, 1, a)), make_plan_key(other)), 0u);
  EXPECT_EQ(common_prefix_tokens("", "x"), 0u);
}

TEST(PlanKeyTest, RefusesWhatAKeyCannotHold) {
  PlanEntry entry = make_entry({}, 1, {-1});
  EXPECT_THROW(make_plan_key(entry), std::invalid_argument);
  entry = make_entry({}, 1, {(1 << 24) - 1});
  EXPECT_THROW(make_plan_key(entry), std::invalid_argument);
  entry = make_entry({}, 1, {(1 << 24) - 2});
  EXPECT_EQ(parse_plan_key(make_plan_key(entry))->ids, entry.prompts.front());
  entry.fingerprint = "xyz";
  EXPECT_THROW(make_plan_key(entry), std::invalid_argument);
  entry = make_entry({}, 1, {1});
  entry.priority = 11;
  EXPECT_THROW(make_plan_key(entry), std::invalid_argument);
  entry = make_entry({}, 1, {1});
  entry.prompts.clear();
  EXPECT_THROW(make_plan_key(entry), std::invalid_argument);
}

class PlanTest : public StoreTest {};

TEST_F(PlanTest, PagesCoverARangeOnceAndInOrder) {
  prepared_job(250);
  const std::vector<PlanItem> all = whole_plan();
  ASSERT_EQ(all.size(), 250u);
  EXPECT_TRUE(std::ranges::is_sorted(all, {}, &PlanItem::key));
  std::vector<std::uint64_t> lines;
  PlanRange range{all[10].key, all[200].key};
  while (true) {
    const PlanPage page = store_->read_plan(range, 7);
    EXPECT_LE(page.items.size(), 7u);
    for (const PlanItem& item : page.items) lines.push_back(item.line.line);
    if (page.at_end) break;
    range.begin = page.next;
  }
  ASSERT_EQ(lines.size(), 190u);
  for (std::size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i], all[10 + i].line.line);
}

TEST_F(PlanTest, SerialsGrowAcrossRestarts) {
  prepared_job(10);
  const std::uint64_t before = store_->plan_serial();
  EXPECT_EQ(before, 10u);
  open();
  EXPECT_EQ(store_->plan_serial(), before);
  const JobId second = prepared_job(1);
  EXPECT_EQ(store_->plan_entry(plan_key_of(second, 1))->key.line, 1u);
  EXPECT_EQ(store_->plan_serial(), before + 1);
}

TEST_F(PlanTest, ListsLevelsWithTheirBounds) {
  const JobId id = sealed_job(3);
  JobStore::Prepared prepared;
  prepared.first_line = 1;
  prepared.last_line = 3;
  for (std::uint64_t line = 1; line <= 3; ++line) {
    prepared.entries.push_back(make_entry(id, line, {1, 2, 3}));
  }
  prepared.entries[1].priority = 5;
  prepared.entries[2].short_lane = true;
  ASSERT_TRUE(store_->commit_prepared(id, prepared, kNowS));
  const std::vector<PlanLevel> levels = store_->plan_levels();
  ASSERT_EQ(levels.size(), 3u);
  EXPECT_EQ(levels[0].priority, 5);
  EXPECT_TRUE(levels[1].short_lane);
  EXPECT_FALSE(levels[2].short_lane);
  for (const PlanLevel& level : levels) {
    const PlanPage page = store_->read_plan({level.first, level.limit}, 10);
    EXPECT_EQ(page.items.size(), 1u);
    EXPECT_TRUE(page.at_end);
  }
}

TEST_F(PlanTest, LeavesOutEndedJobsAndDrainsThem) {
  const JobId kept = prepared_job(20);
  const JobId cancelled = prepared_job(50);
  ASSERT_TRUE(store_->end_job(cancelled, "batch_cancelled", kNowS));
  for (const PlanItem& item : whole_plan()) EXPECT_EQ(item.line.job, kept);
  open();  // the wish to drain is durable
  EXPECT_EQ(whole_plan().size(), 20u);
  EXPECT_EQ(store_->check().plan_entries, 70u);
  int rounds = 0;
  while (store_->drain_plan(4)) ASSERT_LT(++rounds, 100);
  EXPECT_EQ(store_->check().plan_entries, 20u);
  EXPECT_FALSE(store_->drain_plan(4));
  expect_sound();
}

TEST_F(PlanTest, ReplacesEntriesThatAreStillThere) {
  const JobId id = prepared_job(3);
  ASSERT_TRUE(finish(id, 1));
  std::vector<PlanEntry> entries;
  std::vector<PlanKey> old_keys;
  for (std::uint64_t line = 1; line <= 2; ++line) {
    old_keys.push_back(plan_key_of(id, line));
    entries.push_back(make_entry(id, line, {9, 9, 9}));
    entries.back().fingerprint = "ffffffffffffffff";
  }
  store_->replace_plan(old_keys, entries);
  EXPECT_FALSE(store_->plan_entry(old_keys[1]));
  EXPECT_FALSE(store_->plan_entry(make_plan_key(entries[0])));
  EXPECT_TRUE(store_->plan_entry(make_plan_key(entries[1])));
  expect_sound();
}

TEST_F(PlanTest, CountsAttemptsUntilTheResult) {
  const JobId id = prepared_job(2);
  const std::vector<LineKey> lines{{id, 1}, {id, 2}};
  EXPECT_EQ(store_->begin_attempts(lines), (std::vector<std::uint32_t>{1, 1}));
  EXPECT_EQ(store_->begin_attempts(std::span(lines).first(1)), (std::vector<std::uint32_t>{2}));
  open();
  EXPECT_EQ(store_->attempts(lines), (std::vector<std::uint32_t>{2, 1}));
  ASSERT_TRUE(finish(id, 1));
  store_->clear_attempts(std::span(lines).last(1));
  EXPECT_EQ(store_->attempts(lines), (std::vector<std::uint32_t>{0, 0}));
}

}  // namespace
}  // namespace batchmill
