#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <set>

#include "storage/database.h"
#include "storage/keys.h"
#include "storage/repair.h"
#include "tests/storage/store_fixture.h"

namespace batchmill {
namespace {

using Contents = std::vector<std::pair<std::string, std::string>>;

class RebuildTest : public StoreTest {
 protected:
  // Three jobs: one running with duplicates and failures, one cancelled, one completed.
  void SetUp() override {
    running_ = sealed_job(30);
    prepare_running(1);
    for (std::uint64_t line : {20, 3, 9, 4}) ASSERT_TRUE(finish(running_, line));
    cancelled_ = prepared_job(10);
    ASSERT_TRUE(finish(cancelled_, 2));
    ASSERT_TRUE(store_->end_job(cancelled_, "batch_cancelled", kNowS));
    while (store_->drain_plan(100)) {
    }
    completed_ = prepared_job(2);
    ASSERT_TRUE(finish(completed_, 2));
    ASSERT_TRUE(finish(completed_, 1));
    ASSERT_FALSE(store_->end_finished_jobs(kNowS).empty());
    expect_sound();
  }

  void prepare_running(std::uint64_t first) {
    JobStore::Prepared prepared;
    prepared.first_line = first;
    prepared.last_line = 30;
    for (std::uint64_t line = first; line <= 30; ++line) {
      if (line == 7) {
        // Carries the id of line 5, which is still pending.
        LineResult failure = make_failure(running_, line, "duplicate_custom_id");
        failure.custom_id = "id-5";
        failure.has_custom_id = true;
        prepared.failures.push_back(failure);
        continue;
      }
      const auto number = static_cast<std::int32_t>(line);
      prepared.entries.push_back(make_entry(running_, line, {number % 4, number}));
      prepared.custom_ids.emplace_back("id-" + std::to_string(line), line);
    }
    ASSERT_TRUE(store_->commit_prepared(running_, std::move(prepared), kNowS));
  }

  Contents contents(Family family) {
    store_.reset();
    Contents out;
    {
      const Database database(directory_.path(), small_options(), true, nullptr);
      for (Database::Cursor cursor(database, family, {}, {}); cursor.valid(); cursor.next()) {
        out.emplace_back(cursor.key(), cursor.value());
      }
    }
    open();
    return out;
  }

  std::ptrdiff_t of_job(const JobId& id, Family family) {
    return std::ranges::count_if(contents(family), [&](const auto& record) {
      return record.first.starts_with(keys::job_prefix(id));
    });
  }

  // Changes the database behind the store's back.
  void tamper(const std::function<void(Database&, rocksdb::WriteBatch&)>& change) {
    store_.reset();
    {
      Database database(directory_.path(), small_options(), false, nullptr);
      rocksdb::WriteBatch batch;
      change(database, batch);
      database.write(batch, true);
    }
    open();
  }

  // Spoils the first block of each table of the families, after a change. What reads one finds it
  // damaged.
  void damage_tables(
      const std::set<std::string>& families,
      const std::function<void(Database&)>& change = [](Database&) {}) {
    store_.reset();
    {
      Database database(directory_.path(), small_options(), false, nullptr);
      change(database);
      database.flush_all();
    }
    const Database database(directory_.path(), small_options(), true, nullptr);
    std::set<std::string> damaged;
    std::vector<rocksdb::LiveFileMetaData> tables;
    database.db().GetLiveFilesMetaData(&tables);
    for (const rocksdb::LiveFileMetaData& table : tables) {
      if (!families.contains(table.column_family_name)) continue;
      std::fstream file(table.db_path + table.name,
                        std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(8);
      file.write("\xde\xad\xbe\xef", 4);
      ASSERT_TRUE(file.good());
      damaged.insert(table.column_family_name);
    }
    ASSERT_TRUE(damaged.contains("done"));
  }

  JobId running_;
  JobId cancelled_;
  JobId completed_;
};

TEST_F(RebuildTest, GivesBackWhatWasThere) {
  const auto families = {Family::kIds, Family::kDone, Family::kLedger, Family::kJobs};
  std::map<Family, Contents> before;
  for (Family family : families) before[family] = contents(family);
  const std::vector<PlanItem> plan_before = whole_plan();
  store_->measure_prefixes(running_);
  const Job running_before = *store_->job(running_);

  store_->rebuild();
  EXPECT_TRUE(whole_plan().empty());
  EXPECT_EQ(store_->job(running_)->state.prepared_through, 0u);
  prepare_running(1);
  EXPECT_EQ(*store_->job(running_), running_before);
  const std::vector<PlanItem> plan_after = whole_plan();
  ASSERT_EQ(plan_after.size(), plan_before.size());
  for (std::size_t i = 0; i < plan_after.size(); ++i) {
    EXPECT_EQ(plan_after[i].key, plan_before[i].key);
  }
  for (Family family : {Family::kDone, Family::kLedger, Family::kIds}) {
    if (family == Family::kIds) {
      // Of the cancelled job only ids of lines with results are known from them.
      EXPECT_EQ(store_->find_line(running_, "id-5"), 5u);
      EXPECT_EQ(store_->find_line(cancelled_, "id-2"), 2u);
      EXPECT_EQ(store_->find_line(completed_, "id-1"), 1u);
      continue;
    }
    EXPECT_EQ(contents(family), before[family]) << family_name(family);
  }
  expect_sound();
}

TEST_F(RebuildTest, FindsNothingLeftOfAJobThatEndedInItsUpload) {
  const JobId id = new_job();
  store_->append_lines(id, make_lines(1, 2), 200, kNowUs);
  prepare(id, 1, 2);
  ASSERT_TRUE(finish(id, 1));
  ASSERT_TRUE(finish(id, 2));
  ASSERT_TRUE(store_->end_job(id, "batch_cancelled", kNowS));
  EXPECT_EQ(of_job(id, Family::kPrompts), 0);
  EXPECT_EQ(of_job(running_, Family::kPrompts), 29);
}

TEST_F(RebuildTest, MeasuresAgainWhatWasNotMeasured) {
  const std::uint64_t prompt_tokens = store_->job(running_)->state.prefix_prompt_tokens;
  store_->rebuild();
  EXPECT_EQ(store_->job(running_)->state.prefix_prompt_tokens, 0u);
  prepare_running(1);
  EXPECT_EQ(store_->job(running_)->state.prefix_prompt_tokens, prompt_tokens);
  store_->measure_prefixes(running_);
  // 29 prompts {line % 4, line}.
  EXPECT_EQ(store_->job(running_)->state.prefix_trie_tokens, 4u + 29u);
}

TEST_F(RebuildTest, RepairsWhatCheckFinds) {
  tamper([&](Database& database, rocksdb::WriteBatch& batch) {
    const std::string prefix = keys::job_prefix(running_);
    const std::string end = keys::behind(prefix);
    ASSERT_TRUE(batch.DeleteRange(database.handle(Family::kLedger), prefix, end).ok());
    ASSERT_TRUE(batch
                    .Delete(database.handle(Family::kJobs),
                            keys::job_key(completed_, keys::JobPart::kCounters))
                    .ok());
    ASSERT_TRUE(batch.Delete(database.handle(Family::kPlan), plan_key_of(running_, 11)).ok());
    ASSERT_TRUE(batch.Delete(database.handle(Family::kDone), keys::line_key({running_, 2})).ok());
  });
  const auto problems = store_->check().problems;
  const auto mentions = [&](const std::string& part) {
    return std::ranges::any_of(problems, [&](const std::string& problem) {
      return problem.find(part) != std::string::npos;
    });
  };
  EXPECT_TRUE(mentions("ledger: rows of " + running_.to_string()));
  EXPECT_TRUE(mentions("counters of " + completed_.to_string()));
  EXPECT_TRUE(mentions("neither entry nor result, " + running_.to_string() + " line 11"));
  EXPECT_TRUE(mentions("done: does not name"));
  store_->rebuild();
  prepare_running(1);
  expect_sound();
}

TEST_F(RebuildTest, FindsOrphans) {
  tamper([&](Database& database, rocksdb::WriteBatch& batch) {
    ASSERT_TRUE(
        batch.Delete(database.handle(Family::kLines), keys::line_key({completed_, 1})).ok());
    ASSERT_TRUE(batch
                    .Put(database.handle(Family::kPlan), plan_key_of(running_, 3),
                         *database.get(Family::kPlan, plan_key_of(running_, 5)))
                    .ok());
  });
  const auto problems = store_->check().problems;
  EXPECT_TRUE(std::ranges::any_of(problems, [&](const std::string& problem) {
    return problem.find("results: no such line, " + completed_.to_string()) != std::string::npos;
  }));
  EXPECT_TRUE(std::ranges::any_of(problems, [&](const std::string& problem) {
    return problem.find("entry beside a result, " + running_.to_string()) != std::string::npos;
  }));
}

// Of a job that has not ended, too.
TEST_F(RebuildTest, OpensOverDamagedTablesOfWhatItMakesAnew) {
  damage_tables({"ids", "plan", "prompts", "attempts", "done", "ledger"});
  store_ = open_up_to_damage(directory_.path(), small_options());
  store_->rebuild();
  prepare_running(1);
  ASSERT_TRUE(finish(running_, 13));
  expect_sound();
}

TEST_F(RebuildTest, GoesOnOverDamagedTablesWhenItWasCutOff) {
  damage_tables({"done"}, [&](Database& database) {
    rocksdb::WriteBatch batch;
    ASSERT_TRUE(batch.Put(database.handle(Family::kMeta), "rebuilding", "").ok());
    database.write(batch, true);
  });
  store_ = open_up_to_damage(directory_.path(), small_options());
  prepare_running(1);
  ASSERT_TRUE(finish(running_, 13));
  expect_sound();
}

TEST_F(RebuildTest, GoesOnWhenItWasCutOff) {
  tamper([&](Database& database, rocksdb::WriteBatch& batch) {
    ASSERT_TRUE(batch.Put(database.handle(Family::kMeta), "rebuilding", "").ok());
    ASSERT_TRUE(
        batch.DeleteRange(database.handle(Family::kLedger), std::string(), std::string("\xff"))
            .ok());
  });
  prepare_running(1);
  expect_sound();
}

}  // namespace
}  // namespace batchmill
