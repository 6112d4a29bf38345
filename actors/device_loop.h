// The thread that owns an Engine: takes lines, runs steps, shares each step's time over the lines
// in it, and reports lines that have ended. All methods may be called from any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "actors/clock.h"
#include "actors/live_stats.h"
#include "actors/messages.h"
#include "actors/step_growth.h"
#include "actors/work_share.h"
#include "engine/step_engine.h"

namespace batchmill {

class DeviceLoop {
 public:
  // Called on the loop's thread; must return quickly.
  struct Callbacks {
    std::function<void(WorkRequest)> pull;  // there is room for more lines
    std::function<void(LineCompletion)> completed;
    std::function<void(std::vector<LineKey>)> returned;  // lines given up without a result
    std::function<void(std::string)> failed;  // the device is broken; the loop has ended
  };

  // `engine` belongs to the loop from now on. `name`: "cpu:0". The loop holds `runner_mutex` while
  // it lives, so that the engine of a loop that is on its way out and the engine of the one that
  // takes its place never share the runner.
  DeviceLoop(std::uint32_t device, std::string name, const EngineOptions& options,
             std::unique_ptr<StepEngine> engine, std::shared_ptr<std::mutex> runner_mutex,
             Callbacks callbacks, const Clock* clock, LiveStats* live);
  ~DeviceLoop();  // ends after the step under way; lines without a result are forgotten

  void push(std::vector<WorkItem> items);
  void drop_job(const JobId& job);

  // Takes no more lines and gives back those that have not started; the others run on.
  void drain();
  // Waits until nothing is left to run. False when `deadline` came first.
  bool wait_idle(std::chrono::steady_clock::time_point deadline);
  // Gives back everything that is left.
  void give_back();

  EngineStats stats() const;  // as of the last step

 private:
  struct Line {
    WorkItem item;
    std::vector<RequestOutput> outputs;  // [prompts], in order
    std::size_t num_missing = 0;
    std::string error;  // of the first prompt that the engine could not answer
    std::uint64_t prefill_us = 0;
    std::uint64_t decode_us = 0;
    std::int64_t admitted_us = 0;
    std::int64_t first_token_us = 0;
    bool dropped = false;  // asked to end early …
    bool cut_short = false;  // … and did, before it was finished
  };
  struct Part {
    Line* line = nullptr;
    std::size_t prompt = 0;
  };

  void run();
  void take_inbox();
  void add_line(WorkItem item);
  void ask_for_more();
  bool step();
  bool count_failure(const char* what);
  bool make_smaller_steps();
  void make_larger_steps();
  void account(const StepOutput& output, std::uint64_t step_us);
  void collect(RequestOutput output);
  void release(bool started_too);
  void complete(Line& line, std::string error_code, std::string error_message);

  const std::uint32_t device_;
  const std::string name_;
  const EngineOptions options_;
  const std::unique_ptr<StepEngine> engine_;
  const std::shared_ptr<std::mutex> runner_mutex_;
  const Callbacks callbacks_;
  const Clock* const clock_;
  LiveStats* const live_;

  // The loop thread's own.
  std::map<LineKey, Line> lines_;
  std::map<RequestId, Part> parts_;
  RequestId next_request_ = 1;
  bool pull_outstanding_ = false;
  bool first_step_ahead_ = false;  // the device was idle and has not made a step since
  std::int32_t failed_steps_ = 0;
  StepGrowth growth_;
  // Scratch of account().
  std::vector<std::uint64_t> step_rows_;
  std::vector<std::pair<JobId, std::uint64_t>> job_tokens_;
  LargestRemainder shares_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::vector<WorkItem> inbox_;
  std::vector<JobId> dropped_jobs_;
  bool inbox_filled_ = false;
  bool draining_ = false;
  bool give_back_ = false;
  bool stopping_ = false;
  bool is_idle_ = true;
  EngineStats stats_;
  std::thread thread_;
};

}  // namespace batchmill
