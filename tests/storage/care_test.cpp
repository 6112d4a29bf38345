// Backup, restore, compaction and pruning of a store.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "tests/storage/store_fixture.h"

namespace batchmill {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class CareTest : public StoreTest {
 protected:
  // A finished job.
  JobId completed_job(std::uint64_t num_lines, JobRequest request = {}) {
    const JobId id = prepared_job(num_lines, std::move(request));
    std::vector<LineResult> results;
    std::vector<PlanKey> plan_keys;
    for (std::uint64_t line = 1; line <= num_lines; ++line) {
      results.push_back(make_result(id, line));
      // What no compression makes small.
      for (int i = 0; i < 100; ++i) results.back().output += static_cast<char>(random_() % 255);
      plan_keys.push_back(plan_key_of(id, line));
    }
    store_->commit_results(results, plan_keys, kNowS);
    EXPECT_EQ(store_->end_finished_jobs(kNowS), std::vector<JobId>{id});
    return id;
  }

  std::string backup_path() const { return outside_.path() + "/backup"; }
  std::string restored_path() const { return outside_.path() + "/data/store"; }
  void restore() {
    fs::create_directories(outside_.path() + "/data");
    restore_backup(backup_path(), restored_path());
  }

  std::mt19937 random_{7};
  TemporaryDirectory outside_;
  std::atomic<bool> stop_{false};
};

TEST_F(CareTest, ARestoredBackupIsTheStoreOfThatMoment) {
  const JobId done = completed_job(20);
  const JobId running = prepared_job(30);
  ASSERT_TRUE(finish(running, 4));
  store_->backup(backup_path(), stop_);
  const Job then = *store_->job(running);
  ASSERT_TRUE(finish(running, 5));
  restore();
  const auto restored =
      JobStore::open(restored_path(), small_options(), JobStore::Mode::kReadWrite);
  EXPECT_EQ(restored->check().problems, std::vector<std::string>());
  EXPECT_EQ(*restored->job(running), then);
  EXPECT_EQ(*restored->job(done), *store_->job(done));
  EXPECT_TRUE(restored->result({running, 4}));
  EXPECT_FALSE(restored->result({running, 5}));
  EXPECT_EQ(restored->check().plan_entries, 29u);
  EXPECT_FALSE(fs::exists(restoring_directory(restored_path())));
}

TEST_F(CareTest, ASecondBackupCopiesOnlyWhatIsNew) {
  completed_job(20'000);
  store_->compact(stop_);  // so that no other compaction makes the tables new ones
  const StoreCare::BackupReport first = store_->backup(backup_path(), stop_);
  completed_job(1);
  const StoreCare::BackupReport second = store_->backup(backup_path(), stop_);
  EXPECT_LT(second.new_bytes * 3, first.new_bytes);
  EXPECT_GT(second.bytes, second.new_bytes * 3);
  restore();
  const auto restored = JobStore::open(restored_path(), small_options(), JobStore::Mode::kReadOnly);
  EXPECT_EQ(restored->check().jobs, 2u);
}

TEST_F(CareTest, ABackupIsOfOneMomentWhileWorkGoesOn) {
  const JobId id = prepared_job(400);
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (std::uint64_t line = 1; line <= 400 && !done; ++line) finish(id, line);
  });
  for (int i = 0; i < 3; ++i) {
    store_->backup(backup_path(), stop_);
    fs::remove_all(outside_.path() + "/data");
    restore();  // checks that counters, ledger, plan and results agree
  }
  done = true;
  writer.join();
}

TEST_F(CareTest, ABackupKeepsOutOfDirectoriesOfOthers) {
  std::ofstream(outside_.path() + "/letter") << "dear";
  EXPECT_THROW(store_->backup(outside_.path(), stop_), std::invalid_argument);
  EXPECT_THROW(store_->backup(outside_.path() + "/letter", stop_), std::invalid_argument);
  EXPECT_THROW(store_->backup(directory_.path(), stop_), std::invalid_argument);
}

TEST_F(CareTest, AStoppedBackupLeavesTheOneBefore) {
  completed_job(10);
  store_->backup(backup_path(), stop_);
  completed_job(10);
  stop_ = true;
  EXPECT_EQ(error_kind([&] { store_->backup(backup_path(), stop_); }), StorageError::Kind::kIo);
  restore();
  const auto restored = JobStore::open(restored_path(), small_options(), JobStore::Mode::kReadOnly);
  EXPECT_EQ(restored->check().jobs, 1u);
}

TEST_F(CareTest, ADamagedBackupIsNamedAndLeavesNothing) {
  completed_job(500);
  store_->backup(backup_path(), stop_);
  std::string table;
  for (const auto& entry : fs::recursive_directory_iterator(backup_path())) {
    if (entry.path().extension() != ".sst") continue;
    table = entry.path().filename();
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(100);
    file.write("\xde\xad\xbe\xef", 4);
  }
  std::string message;
  EXPECT_EQ(error_kind([&] { restore(); }, &message), StorageError::Kind::kDamaged) << message;
  EXPECT_THAT(message, HasSubstr(".sst"));
  EXPECT_TRUE(fs::is_empty(outside_.path() + "/data"));
}

TEST_F(CareTest, AMissingFileOfABackupIsNamed) {
  completed_job(5);
  store_->backup(backup_path(), stop_);
  const fs::path table = fs::directory_iterator(backup_path() + "/shared_checksum")->path();
  fs::remove(table);
  std::string message;
  EXPECT_EQ(error_kind([&] { restore(); }, &message), StorageError::Kind::kDamaged) << message;
  EXPECT_THAT(message, HasSubstr(table.filename().string()));
  EXPECT_TRUE(fs::is_empty(outside_.path() + "/data"));
}

TEST_F(CareTest, RestoreTakesNoBackupForNone) {
  EXPECT_EQ(error_kind([&] { restore_backup(outside_.path(), restored_path()); }),
            StorageError::Kind::kMissing);
}

TEST_F(CareTest, RestoreStartsOverWhatWasCutOff) {
  completed_job(5);
  store_->backup(backup_path(), stop_);
  fs::create_directories(restoring_directory(restored_path()));
  std::ofstream(restoring_directory(restored_path()) + "/000007.sst") << "half";
  restore();
  EXPECT_EQ(
      JobStore::open(restored_path(), small_options(), JobStore::Mode::kReadOnly)->check().jobs,
      1u);
  EXPECT_EQ(error_kind([&] { restore(); }), StorageError::Kind::kIo);  // there is one now
}

TEST_F(CareTest, PruneTakesOldJobsWhole) {
  JobRequest keyed;
  keyed.idempotency_key = "nightly";
  const JobId old = completed_job(20, keyed);
  const JobId cancelled = prepared_job(30);
  ASSERT_TRUE(finish(cancelled, 1));
  ASSERT_TRUE(store_->end_job(cancelled, "batch_cancelled", kNowS + 1));
  const JobId running = prepared_job(10);
  ASSERT_TRUE(finish(running, 1));
  const JobId younger = completed_job(5);

  EXPECT_EQ(store_->prune(kNowS, stop_), (StoreCare::PruneReport{0, 0, 0}));
  // The clock of a store does not go back, so the jobs behind the cancelled one end no earlier.
  EXPECT_EQ(store_->prune(kNowS + 1, stop_), (StoreCare::PruneReport{1, 20, 20}));
  EXPECT_FALSE(store_->job(old));
  EXPECT_FALSE(store_->job_of_key("nightly"));
  expect_sound();
  EXPECT_EQ(store_->prune(kNowS + 2, stop_), (StoreCare::PruneReport{2, 35, 6}));
  EXPECT_FALSE(store_->job(cancelled));
  EXPECT_FALSE(store_->job(younger));
  EXPECT_TRUE(store_->job(running));
  EXPECT_EQ(store_->prune(INT64_MAX, stop_), (StoreCare::PruneReport{0, 0, 0}));
  expect_sound();

  const StoreCare::CheckReport left = store_->check();
  EXPECT_EQ(left.jobs, 1u);
  EXPECT_EQ(left.lines, 10u);
  EXPECT_EQ(left.results, 1u);
  EXPECT_EQ(left.plan_entries, 9u);
  open();
  expect_sound();
  ASSERT_TRUE(finish(running, 2));
  EXPECT_NE(new_job(keyed), old);
}

// As everywhere: a blank line is none of a job's lines.
TEST_F(CareTest, BlankLinesAreNotCounted) {
  const JobId id = new_job();
  const std::vector<StoredLine> lines = {{1, "{}"}, {2, ""}, {3, "{}"}};
  store_->append_lines(id, lines, 100, kNowUs);
  ASSERT_TRUE(store_->seal(id, "hash", kNowS));
  EXPECT_EQ(store_->check().lines, 2u);
  ASSERT_TRUE(store_->end_job(id, "batch_cancelled", kNowS));
  EXPECT_EQ(store_->prune(kNowS + 1, stop_), (StoreCare::PruneReport{1, 2, 0}));
}

TEST_F(CareTest, PruneTakesNoMoreWhenStopped) {
  completed_job(3);
  stop_ = true;
  EXPECT_EQ(store_->prune(INT64_MAX, stop_), (StoreCare::PruneReport{0, 0, 0}));
}

TEST_F(CareTest, AttemptsOfAnEndedJobLeaveNothingBehind) {
  const JobId id = prepared_job(3);
  ASSERT_TRUE(store_->end_job(id, "batch_cancelled", kNowS));
  const LineKey late{id, 1};
  EXPECT_EQ(store_->begin_attempts({&late, 1}), std::vector<std::uint32_t>{1});
  store_->prune(INT64_MAX, stop_);
  expect_sound();
}

TEST_F(CareTest, CompactionGivesBackTheSpaceOfPrunedJobs) {
  const JobId kept = completed_job(10);
  completed_job(5'000);
  store_->flush();
  ASSERT_EQ(store_->compact(stop_).bytes_before > 0, true);
  const std::uint64_t before = store_->compact(stop_).bytes_after;
  store_->prune(kNowS + 1, stop_);
  EXPECT_FALSE(store_->job(kept));
  completed_job(10);
  const StoreCare::CompactReport report = store_->compact(stop_);
  EXPECT_LT(report.bytes_after * 2, before);
  expect_sound();
  stop_ = true;
  EXPECT_EQ(error_kind([&] { store_->compact(stop_); }), StorageError::Kind::kIo);
  stop_ = false;
  expect_sound();
}

TEST_F(CareTest, TablesAreToldApart) {
  completed_job(500);
  store_->flush();
  store_.reset();
  TableReport report = check_tables(directory_.path());
  EXPECT_GT(report.tables, 3u);
  EXPECT_TRUE(report.damaged.empty());
  fs::path table;
  for (const auto& entry : fs::directory_iterator(directory_.path())) {
    if (entry.path().extension() == ".sst") table = entry.path();
  }
  std::fstream(table, std::ios::in | std::ios::out | std::ios::binary).write("\xde\xad\xbe\xef", 4);
  report = check_tables(directory_.path());
  ASSERT_EQ(report.damaged.size(), 1u);
  EXPECT_EQ(report.damaged.front().file, table.filename());
  EXPECT_FALSE(report.damaged.front().family.empty());
}

}  // namespace
}  // namespace batchmill
