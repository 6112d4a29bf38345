#include "actors/dispatcher.h"

#include <gtest/gtest.h>

#include <future>

#include "storage/store.h"
#include "tests/actors/test_daemon.h"
#include "tests/support/fullable_file_system.h"

namespace batchmill::testing {
namespace {

constexpr std::chrono::seconds kPatience{60};
constexpr const char* kFingerprint = "00000000000000aa";

using Received = std::shared_ptr<std::promise<std::size_t>>;

// A device that says how many lines it was given first.
DeviceWorkerActor::behavior_type receiving_device(DeviceWorkerActor::pointer, Received received) {
  return {
      [=](work_atom, const std::vector<WorkItem>& items) { received->set_value(items.size()); },
      [](changed_atom, const JobId&) {},
      [](done_atom, const std::string&) {},
  };
}

// A dispatcher by itself, over a store whose disk can be full.
class DispatcherTest : public ::testing::Test {
 protected:
  DispatcherTest()
      : env_(rocksdb::NewCompositeEnv(disk_)),
        store_(
            open_store(directory_.path() + "/store", {}, JobStore::Mode::kReadWrite, env_.get())) {
    context_->store = store_.get();
    context_->clock = &clock_;
    context_->live = &live_;
  }

  void plan_lines(std::uint64_t count) {
    const JobId id = store_->open_job({}, 1'700'000'000'000).job.id;
    std::vector<StoredLine> lines;
    JobStore::Prepared prepared;
    prepared.first_line = 1;
    prepared.last_line = count;
    for (std::uint64_t i = 1; i <= count; ++i) {
      lines.push_back({i, "{}", false});
      PlanEntry entry;
      entry.key = {id, i};
      entry.model = "m";
      entry.fingerprint = kFingerprint;
      entry.prompts = {{1, static_cast<TokenId>(i)}};
      prepared.entries.push_back(std::move(entry));
    }
    store_->append_lines(id, lines, count * 3, 0);
    store_->commit_prepared(id, std::move(prepared), 1'700'000'000);
  }

  TemporaryDirectory directory_;
  std::shared_ptr<FullableFileSystem> disk_ = std::make_shared<FullableFileSystem>();
  std::unique_ptr<rocksdb::Env> env_;
  std::unique_ptr<JobStore> store_;
  Clock clock_;
  LiveStats live_;
  std::shared_ptr<ActorContext> context_ = std::make_shared<ActorContext>();
  caf::actor_system_config config_;
  caf::actor_system system_{config_};
};

TEST_F(DispatcherTest, AdmitsLinesOnceTheDiskHasSpaceAgain) {
  plan_lines(3);
  const Received received = std::make_shared<std::promise<std::size_t>>();
  std::future<std::size_t> num_lines = received->get_future();
  const DispatcherActor tested =
      system_.spawn(dispatcher, context_, std::vector<std::string>{kFingerprint},
                    std::make_shared<OpenAttempts>());
  context_->directory.set_devices({system_.spawn(receiving_device, received)});

  disk_->is_full = true;
  caf::scoped_actor self{system_};
  caf::anon_send(tested, pull_atom::value, WorkRequest{0, 100, 1'000'000});
  bool alive = false;
  self->request(tested, kPatience, flush_atom::value, true)
      .receive([&](bool answer) { alive = answer; }, [](const caf::error&) {});
  EXPECT_TRUE(alive);
  EXPECT_EQ(num_lines.wait_for(std::chrono::seconds(0)), std::future_status::timeout);

  disk_->is_full = false;
  ASSERT_EQ(num_lines.wait_for(kPatience), std::future_status::ready);
  EXPECT_EQ(num_lines.get(), 3u);

  self->send_exit(tested, caf::exit_reason::user_shutdown);
  for (const auto& device : context_->directory.devices()) {
    self->send_exit(device, caf::exit_reason::user_shutdown);
  }
  context_->directory.clear();
}

}  // namespace
}  // namespace batchmill::testing
