// Actors by themselves, over a store whose disk can be full and whose calls a test can get in
// before. One thread.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "actors/context.h"
#include "storage/store.h"
#include "tests/actors/test_clock.h"
#include "tests/support/fullable_file_system.h"
#include "tests/support/temporary_directory.h"

namespace batchmill::testing {

// A test's function that other threads call; none: nothing happens.
template <class... Args>
class Hook {
 public:
  Hook& operator=(std::function<void(Args...)> function) {
    const std::lock_guard lock(mutex_);
    function_ = std::move(function);
    return *this;
  }
  void operator()(Args... args) {
    std::function<void(Args...)> function;
    {
      const std::lock_guard lock(mutex_);
      function = function_;
    }
    if (function) function(args...);
  }

 private:
  std::mutex mutex_;
  std::function<void(Args...)> function_;
};

// What a test does before the store does what it is asked for.
class WatchedStore : public Store {
 public:
  using Store::Store;

  bool write_lines(const JobId& id, std::span<const StoredLine> lines,
                   std::uint64_t upload_offset_bytes, std::int64_t now_us) override {
    before_write_lines(id);
    return Store::write_lines(id, lines, upload_offset_bytes, now_us);
  }
  bool seal(const JobId& id, const std::string& content_hash, std::int64_t now_s) override {
    before_seal(id);
    return Store::seal(id, content_hash, now_s);
  }
  std::vector<JobId> end_finished_jobs(std::int64_t now_s) override {
    before_ends();
    return Store::end_finished_jobs(now_s);
  }

  Hook<const JobId&> before_write_lines;
  Hook<const JobId&> before_seal;
  Hook<> before_ends;
};

class ActorTest : public ::testing::Test {
 protected:
  static constexpr std::chrono::seconds kPatience{60};

  ActorTest()
      : env_(rocksdb::NewCompositeEnv(disk_)),
        store_(std::make_unique<WatchedStore>(directory_.path() + "/store", StorageOptions(),
                                              JobStore::Mode::kReadWrite, env_.get())),
        system_(std::make_unique<caf::actor_system>(config_)) {
    context_->store = store_.get();
    context_->clock = &clock_;
    context_->live = &live_;
  }
  ~ActorTest() override { stop(); }

  // Ends the actors that start() has been given, and waits for them.
  void stop() {
    context_->directory.clear();
    if (system_ == nullptr) return;
    for (const caf::actor& actor : actors_) {
      caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
    }
    actors_.clear();
    system_.reset();
  }
  template <class Handle>
  Handle start(Handle actor) {
    actors_.push_back(caf::actor_cast<caf::actor>(actor));
    context_->directory.set(actor);
    return actor;
  }

  TemporaryDirectory directory_;
  std::shared_ptr<FullableFileSystem> disk_ = std::make_shared<FullableFileSystem>();
  std::unique_ptr<rocksdb::Env> env_;
  std::unique_ptr<WatchedStore> store_;
  TestClock clock_;
  LiveStats live_;
  std::shared_ptr<ActorContext> context_ = std::make_shared<ActorContext>();
  caf::actor_system_config config_;
  std::unique_ptr<caf::actor_system> system_;
  std::vector<caf::actor> actors_;
};

}  // namespace batchmill::testing
