// A power cut takes away what was not synced, and nothing else.
#include <gtest/gtest.h>

#include <map>
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

}  // namespace
}  // namespace batchmill::testing
