// A whole daemon in the test's process, with the tiny model's tokenizer and a scripted device, and
// a client of its own. Everything lives in a temporary directory.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "actors/daemon.h"
#include "storage/job_store.h"
#include "tests/actors/test_client.h"
#include "tests/actors/test_clock.h"
#include "tests/support/scripted_runner.h"
#include "tests/support/temporary_directory.h"

namespace batchmill::testing {

struct TestDaemonOptions {
  std::int32_t num_blocks = 512;
  std::int32_t block_size_tokens = 16;
  EngineOptions engine;
  QueueOptions queue;
  std::int32_t max_context_tokens = 0;  // 0: the model's own
  std::string model_name = "tiny";
  std::string model_file = "model-q4_0.gguf";  // of the tiny model
  Price price{"2025-01", "USD", 150'000, 75'000, 600'000};
  bool encoder = false;  // the device makes embeddings
  std::function<void(std::int64_t step)> before_step;
  std::int32_t max_rows = INT32_MAX;  // of a step; more find no memory
  int num_devices = 1;  // all run the model; with more than one, each can be lost
  std::int32_t num_spare_blocks =
      0;  // > 0: of "spare:0", which takes the place of the last one lost
  std::function<void(int device, std::int64_t step)> before_step_of;  // of one of several devices
};

// Starts and stops daemons over one data directory.
class TestDaemon {
 public:
  using Options = TestDaemonOptions;
  explicit TestDaemon(Options options = {});

  void start();
  // For the next start.
  Options& options() { return options_; }
  TestClock& clock() { return *clock_; }
  void stop(std::chrono::milliseconds drain_timeout = std::chrono::seconds(10));
  // Of lines that finish from now on.
  void set_price(Price price);
  bool running() const { return daemon_ != nullptr; }

  // As the client's.
  std::string submit(
      const std::string& content, Json open = Json::object(),
      const JobClient::Progress& progress = [](std::uint64_t) {}) {
    if (!open.contains("key")) open["key"] = "key-" + std::to_string(next_key_++);
    return client_->submit(content, open, progress);
  }
  Json request(Json header) { return client_->request(std::move(header)); }
  std::string request_payload(Json header) { return client_->request_payload(std::move(header)); }
  Json batch(const std::string& job) { return client_->batch(job); }
  Json wait(const std::string& job) { return client_->wait(job); }
  Json wait_until(const std::string& job, const std::function<bool(const Json&)>& holds) {
    return client_->wait_until(job, holds);
  }
  std::vector<Json> results(const std::string& job) { return client_->results(job); }
  std::vector<Json> costs(const std::string& job, const std::string& by) {
    return client_->costs(job, by);
  }
  void wait_for(const std::function<bool()>& holds);
  // Why the daemon gave up; empty while it has not.
  std::string fatal_reason() const;
  // Why lines wait for another start; empty while none do.
  std::string waiting_reason() const;

  // What the (first) scripted device has computed since the last start.
  std::int64_t num_rows() const { return runner_ == nullptr ? 0 : runner_->num_rows(); }
  Daemon& daemon() { return *daemon_; }
  const std::string& data_directory() const { return directory_.path(); }

 private:
  std::optional<Device> make_spare(const ServedModel& model) const;

  Options options_;
  std::shared_ptr<TestClock> clock_ = std::make_shared<TestClock>();
  TemporaryDirectory directory_;
  ScriptedRunner* runner_ = nullptr;
  std::unique_ptr<Daemon> daemon_;
  std::unique_ptr<TestClient> client_;
  int next_key_ = 0;
  mutable std::mutex mutex_;
  std::string fatal_reason_;
  std::string waiting_reason_;
};

}  // namespace batchmill::testing
