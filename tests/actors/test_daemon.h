// A whole daemon in the test's process, with the tiny model's tokenizer and a scripted device, and
// a client of its own. Everything lives in a temporary directory.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "actors/daemon.h"
#include "queue/job_client.h"
#include "storage/job_store.h"
#include "tests/support/scripted_runner.h"

namespace batchmill::testing {

// A directory that goes away with it.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct TestDaemonOptions {
  std::int32_t num_blocks = 512;
  std::int32_t block_size_tokens = 16;
  EngineOptions engine;
  std::string model_name = "tiny";
  std::string model_file = "model-q4_0.gguf";  // of the tiny model
  Price price{"2025-01", "USD", 150'000, 75'000, 600'000};
  std::function<void(std::int64_t step)> before_step;
};

// Starts and stops daemons over one data directory.
class TestDaemon {
 public:
  using Options = TestDaemonOptions;
  explicit TestDaemon(Options options = {});

  void start();
  // For the next start.
  Options& options() { return options_; }
  void stop(std::chrono::milliseconds drain_timeout = std::chrono::seconds(10));
  bool running() const { return daemon_ != nullptr; }

  // Submits a job's content; returns its id.
  std::string submit(
      const std::string& content, Json open = Json::object(),
      const JobClient::Progress& progress = [](std::uint64_t) {});
  Json request(Json header);
  std::string request_payload(Json header);
  Json batch(const std::string& job);
  // Waits until the job has ended; fails the test after a minute. Returns its batch object.
  Json wait(const std::string& job);
  // Waits until `holds` is true of the job's batch object.
  Json wait_until(const std::string& job, const std::function<bool(const Json&)>& holds);
  void wait_for(const std::function<bool()>& holds);
  // Why the daemon gave up; empty while it has not.
  std::string fatal_reason() const;
  // All output and error lines, parsed.
  std::vector<Json> results(const std::string& job);
  std::vector<Json> costs(const std::string& job, const std::string& by);

  // What the scripted device has computed since the last start.
  std::int64_t num_rows() const { return runner_ == nullptr ? 0 : runner_->num_rows(); }
  Daemon& daemon() { return *daemon_; }
  const std::string& data_directory() const { return directory_.path(); }

 private:
  Options options_;
  TemporaryDirectory directory_;
  ScriptedRunner* runner_ = nullptr;
  std::unique_ptr<Daemon> daemon_;
  std::unique_ptr<JobClient> client_;
  int next_key_ = 0;
  mutable std::mutex mutex_;
  std::string fatal_reason_;
};

// A chat line that asks for exactly `max_tokens` tokens.
std::string chat_line(const std::string& custom_id, const std::string& text, int max_tokens = 4);

}  // namespace batchmill::testing
