#include "storage/plan_fronts.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <set>
#include <thread>

#include "tests/storage/store_fixture.h"

namespace batchmill {
namespace {

PlanKey key_of(std::int32_t id, std::int32_t priority = 0) {
  PlanEntry entry;
  entry.key = {{}, static_cast<std::uint64_t>(id)};
  entry.fingerprint = "0123456789abcdef";
  entry.priority = priority;
  entry.prompts = {{id}};
  return make_plan_key(entry);
}

void write(PlanFronts& fronts, const PlanKey& key) { fronts.written(std::span(&key, 1), 1); }

TEST(PlanFrontsTest, BeginsWhereTheLastReadFoundTheFirst) {
  PlanFronts fronts;
  write(fronts, key_of(10));
  const PlanKey first = plan_level_of(key_of(10))->first;
  EXPECT_EQ(PlanFronts::Scan(fronts, first).begin(), key_of(10));
  PlanFronts::Scan(fronts, first).found(key_of(30));
  EXPECT_EQ(PlanFronts::Scan(fronts, first).begin(), key_of(30));
  write(fronts, key_of(20));
  EXPECT_EQ(PlanFronts::Scan(fronts, first).begin(), key_of(20));
  // A read that begins behind the front says nothing about it.
  PlanFronts::Scan(fronts, key_of(40)).found(key_of(50));
  EXPECT_EQ(PlanFronts::Scan(fronts, key_of(40)).begin(), key_of(40));
  EXPECT_EQ(PlanFronts::Scan(fronts, first).begin(), key_of(20));
}

TEST(PlanFrontsTest, KnowsWhatIsWrittenDuringARead) {
  PlanFronts fronts;
  write(fronts, key_of(10));
  const PlanKey first = plan_level_of(key_of(10))->first;
  {
    PlanFronts::Scan scan(fronts, first);
    write(fronts, key_of(15));
    write(fronts, key_of(12));
    write(fronts, key_of(5, 3));  // of another level
    scan.found(key_of(30));
  }
  EXPECT_EQ(PlanFronts::Scan(fronts, first).begin(), key_of(12));
}

TEST(PlanFrontsTest, ALevelThatIsEmptyBeginsAtItsEndUntilItIsNot) {
  PlanFronts fronts;
  write(fronts, key_of(10));
  const PlanLevel level = *plan_level_of(key_of(10));
  PlanFronts::Scan(fronts, level.first).found({});
  EXPECT_EQ(PlanFronts::Scan(fronts, level.first).begin(), level.limit);
  write(fronts, key_of(7));
  EXPECT_EQ(PlanFronts::Scan(fronts, level.first).begin(), key_of(7));
  ASSERT_EQ(fronts.levels().size(), 1u);
  EXPECT_EQ(fronts.levels()[0].level.first, level.first);
}

// One thread plans lines in no order, another answers whatever it finds at the front: it finds each
// of them, however the two meet.
class PlanFrontsStoreTest : public StoreTest {};

TEST_F(PlanFrontsStoreTest, NoEntryIsPassedOverWhileOthersAreWritten) {
  constexpr std::uint64_t kLines = 3'000;
  const JobId job = sealed_job(kLines);
  std::atomic<bool> all_planned{false};
  std::jthread planner([&] {
    std::mt19937 random(7);
    for (std::uint64_t line = 1; line <= kLines; line += 5) {
      JobStore::Prepared prepared;
      prepared.first_line = line;
      prepared.last_line = line + 4;
      for (std::uint64_t i = line; i < line + 5; ++i) {
        prepared.entries.push_back(
            make_entry(job, i, {static_cast<std::int32_t>(random() % 1'000), 1}));
      }
      store_->commit_prepared(job, std::move(prepared), kNowS);
    }
    all_planned = true;
  });
  std::set<std::uint64_t> found;
  while (true) {
    const bool last_look = all_planned;
    const std::vector<PlanLevel> levels = store_->plan_levels();
    if (levels.empty()) {
      if (last_look) break;
      continue;
    }
    ASSERT_EQ(levels.size(), 1u);
    const PlanPage page = store_->read_plan({levels[0].first, levels[0].limit}, 7);
    std::vector<LineResult> results;
    std::vector<PlanKey> keys;
    for (const PlanItem& item : page.items) {
      EXPECT_TRUE(found.insert(item.line.line).second);
      results.push_back(make_result(job, item.line.line));
      keys.push_back(item.key);
    }
    store_->commit_results(results, keys, kNowS);
  }
  EXPECT_EQ(found.size(), kLines);
}

}  // namespace
}  // namespace batchmill
