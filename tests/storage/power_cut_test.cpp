// A power cut takes away what was not synced, and nothing else.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <thread>

#include "storage/store.h"
#include "tests/storage/store_fixture.h"
#include "tests/storage/store_scenario.h"
#include "tests/support/power_cut_file_system.h"

namespace batchmill::testing {
namespace {

// What anyone could see of a job.
struct Visible {
  std::uint64_t lines = 0;
  std::uint64_t results = 0;
  bool ended = false;
};

std::map<std::string, Visible> look(const JobStore& store) {
  std::map<std::string, Visible> all;
  for (const std::string& key : StoreScenario::keys()) {
    const std::optional<Job> job = store.job_of_key(key);
    if (!job) continue;
    all[key] = {job->state.total_lines, job->counters.completed + job->counters.failed,
                job->ended()};
  }
  return all;
}

class PowerCutTest : public ::testing::Test {
 protected:
  std::string store_path() const { return directory_.path() + "/store"; }
  std::unique_ptr<JobStore> open_image(const std::string& image) {
    return JobStore::open(image, small_options(), JobStore::Mode::kReadWrite);
  }

  TemporaryDirectory directory_;
  std::shared_ptr<PowerCutFileSystem> disk_ = std::make_shared<PowerCutFileSystem>();
  std::unique_ptr<rocksdb::Env> env_ = rocksdb::NewCompositeEnv(disk_);
  std::unique_ptr<JobStore> store_ =
      open_store(store_path(), small_options(), JobStore::Mode::kReadWrite, env_.get());
};

TEST_F(PowerCutTest, WhatWasAckedOrVisibleIsThereAfterIt) {
  std::map<std::string, std::map<std::string, Visible>> images;
  int num_steps = 0;
  StoreScenario([&](JobStore& store) {
    ++num_steps;
    const std::string image = directory_.path() + "/image-" + std::to_string(num_steps);
    images[image] = look(store);
    disk_->cut(store_path(), image);
    if (num_steps % 11 == 0) store.flush();
  }).run(*store_);
  EXPECT_GT(num_steps, 40);
  EXPECT_GT(disk_->lost_bytes(), 1'000u) << "nothing was at stake";
  const std::string undisturbed = StoreScenario::summary(*store_);
  for (const auto& [image, before] : images) {
    SCOPED_TRACE(image);
    const auto store = open_image(image);
    ASSERT_EQ(store->check().problems, std::vector<std::string>());
    const std::map<std::string, Visible> after = look(*store);
    for (const auto& [key, visible] : before) {
      ASSERT_TRUE(after.contains(key)) << key;
      EXPECT_GE(after.at(key).lines, visible.lines) << key;
      EXPECT_GE(after.at(key).results, visible.results) << key;
      EXPECT_GE(after.at(key).ended, visible.ended) << key;
    }
    if (std::hash<std::string>()(image) % 4 != 0) continue;
    StoreScenario().run(*store);
    EXPECT_EQ(StoreScenario::summary(*store), undisturbed);
  }
}

TEST_F(PowerCutTest, AResultIsOnTheDiskBeforeAnyoneSeesIt) {
  constexpr std::uint64_t kLines = 2'000;
  const JobId id = store_->open_job({}, kNowMs).job.id;
  store_->append_lines(id, make_lines(1, kLines), 1, kNowUs);
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (std::uint64_t line = 1; line <= kLines && !done; ++line) {
      const LineResult result = make_result(id, line);
      store_->commit_results({&result, 1}, {}, kNowS);
    }
  });
  std::uint64_t most = 0;
  for (int i = 0; i < 12; ++i) {
    const std::string image = directory_.path() + "/image-" + std::to_string(i);
    std::uint64_t visible = 0;
    do {  // a moment later than the last
      visible = store_->job(id)->counters.completed;
    } while (visible == most && visible < kLines);
    disk_->cut(store_path(), image);
    most = visible;
    const auto store = open_image(image);
    EXPECT_GE(store->job(id)->counters.completed, visible);
  }
  done = true;
  writer.join();
  EXPECT_GT(most, 0u);
}

TEST_F(PowerCutTest, LinesAreOnTheDiskAfterTheSyncThatFollowsThem) {
  constexpr std::uint64_t kLines = 4'000, kAtOnce = 40;
  const JobId id = store_->open_job({}, kNowMs).job.id;
  std::atomic<std::uint64_t> written{0}, durable{0};
  std::thread writer([&] {
    while (written < kLines) {
      store_->write_lines(id, make_lines(written + 1, written + kAtOnce), written + kAtOnce,
                          kNowUs);
      written += kAtOnce;
    }
  });
  std::thread syncer([&] {
    while (durable < kLines) {
      const std::uint64_t covered = written;
      store_->sync();
      durable = covered;
    }
  });
  std::uint64_t most = 0, most_kept = 0;
  for (int i = 0; most < kLines; ++i) {
    const std::string image = directory_.path() + "/image-" + std::to_string(i);
    std::uint64_t promised = 0;
    do {
      promised = durable;
    } while (promised == most);
    disk_->cut(store_path(), image);
    most = promised;
    const auto store = open_image(image);
    EXPECT_EQ(store->check().problems, std::vector<std::string>());
    const JobState state = store->job(id)->state;
    EXPECT_GE(state.total_lines, promised);
    EXPECT_EQ(state.upload_offset_bytes, state.total_lines);
    EXPECT_EQ(store->read_lines(id, 1, kLines, SIZE_MAX).size(), state.total_lines);
    most_kept = state.total_lines;
  }
  writer.join();
  syncer.join();
  EXPECT_EQ(most_kept, kLines);
}

// What was not synced is kept up to the first of it that is missing, never with a hole.
TEST_F(PowerCutTest, PagesThatCameOutOfOrderMakeNoHole) {
  constexpr std::uint64_t kAtOnce = 20;
  int num_partly_kept = 0;
  for (unsigned seed = 0; seed < 25; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const std::string path = directory_.path() + "/store-" + std::to_string(seed);
    auto store = open_store(path, small_options(), JobStore::Mode::kReadWrite, env_.get());
    std::vector<JobId> jobs;
    std::map<JobId, std::uint64_t> promised, written;
    for (int i = 0; i < 3; ++i) jobs.push_back(store->open_job({}, kNowMs).job.id);
    const int num_writes = 1 + static_cast<int>(random() % 120);
    for (int i = 0; i < num_writes; ++i) {
      const JobId& id = jobs[random() % jobs.size()];
      const std::uint64_t from = written[id] + 1, to = written[id] + kAtOnce;
      std::vector<StoredLine> lines = make_lines(from, to);
      // Now and then a batch of more than a block of the log.
      if (random() % 8 == 0) lines.front().bytes.append(random() % 100'000, 'x');
      store->write_lines(id, lines, to, kNowUs);
      written[id] = to;
      if (random() % 50 == 0) {
        store->sync();
        promised = written;
      }
      if (random() % 60 == 0) {
        store->flush();
        promised = written;
      }
    }
    const std::string image = directory_.path() + "/image-" + std::to_string(seed);
    disk_->cut(path, image, seed);
    store.reset();
    for (const auto mode : {JobStore::Mode::kReadOnly, JobStore::Mode::kReadWrite}) {
      const auto after = JobStore::open(image, small_options(), mode);
      // Also makes RocksDB write down the options that it was opened with.
      if (mode == JobStore::Mode::kReadWrite && seed % 5 == 0) after->rebuild();
      EXPECT_EQ(after->check().problems, std::vector<std::string>());
      for (const JobId& id : jobs) {
        const JobState state = after->job(id)->state;
        EXPECT_GE(state.total_lines, promised[id]);
        EXPECT_EQ(after->read_lines(id, 1, SIZE_MAX, SIZE_MAX).size(), state.total_lines);
        if (state.total_lines > promised[id] && state.total_lines < written[id]) ++num_partly_kept;
      }
    }
    // It goes on from there, over a second start, too.
    {
      const auto after = open_image(image);
      for (const JobId& id : jobs) {
        const std::uint64_t lines = after->job(id)->state.total_lines;
        after->append_lines(id, make_lines(lines + 1, lines + 5), lines + 5, kNowUs);
        written[id] = lines + 5;
      }
    }
    const auto again = open_image(image);
    EXPECT_EQ(again->check().problems, std::vector<std::string>());
    for (const JobId& id : jobs) EXPECT_EQ(again->job(id)->state.total_lines, written[id]);
    if (HasFailure()) break;
  }
  EXPECT_GT(num_partly_kept, 5) << "nothing was at stake";
}

TEST_F(PowerCutTest, LinesThatAreNotSyncedAreNotPromised) {
  const JobId id = store_->open_job({}, kNowMs).job.id;
  store_->write_lines(id, make_lines(1, 10), 10, kNowUs);
  EXPECT_EQ(store_->job(id)->state.total_lines, 10u);
  disk_->cut(store_path(), directory_.path() + "/image");
  EXPECT_EQ(open_image(directory_.path() + "/image")->job(id)->state.total_lines, 0u);
  // Any durable write takes them along.
  store_->set_paused(id, true);
  disk_->cut(store_path(), directory_.path() + "/later");
  EXPECT_EQ(open_image(directory_.path() + "/later")->job(id)->state.total_lines, 10u);
}

TEST_F(PowerCutTest, ALogThatCouldNotBeSyncedIsNotTrustedAgain) {
  const JobId id = store_->open_job({}, kNowMs).job.id;
  store_->write_lines(id, make_lines(1, 10), 10, kNowUs);
  disk_->fails_syncs = true;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(error_kind([&] { store_->sync(); }), StorageError::Kind::kFull);
  }
  disk_->fails_syncs = false;
  store_->sync();
  disk_->cut(store_path(), directory_.path() + "/image");
  EXPECT_EQ(open_image(directory_.path() + "/image")->job(id)->state.total_lines, 10u);

  // Somebody else's sync fails and takes what the lines were in with it.
  store_->write_lines(id, make_lines(11, 20), 20, kNowUs);
  disk_->fails_syncs = true;
  EXPECT_EQ(error_kind([&] { store_->set_paused(id, true); }), StorageError::Kind::kFull);
  disk_->fails_syncs = false;
  store_->sync();
  disk_->cut(store_path(), directory_.path() + "/later");
  EXPECT_EQ(open_image(directory_.path() + "/later")->job(id)->state.total_lines, 20u);
  store_->set_paused(id, true);
  EXPECT_EQ(store_->check().problems, std::vector<std::string>());
}

}  // namespace
}  // namespace batchmill::testing
