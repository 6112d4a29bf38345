// A script that makes every kind of write, and that goes on from wherever a store is when it is
// run again. One thread.
#pragma once

#include <functional>
#include <string>

#include "storage/job_store.h"

namespace batchmill::testing {

class StoreScenario {
 public:
  // `after_step`: called after every step.
  explicit StoreScenario(std::function<void(JobStore&)> after_step = [](JobStore&) {})
      : after_step_(std::move(after_step)) {}

  void run(JobStore& store);

  // How all jobs ended, as text: the same however often the script was cut off.
  static std::string summary(const JobStore& store);
  // Idempotency keys of its jobs that stay.
  static const std::vector<std::string>& keys();

 private:
  JobId open_job(const std::string& key, bool strict = false);
  void upload(const JobId& id, std::uint64_t num_lines);
  void prepare(const JobId& id);
  void answer(const JobId& id, std::int64_t now_s);
  void step() { after_step_(*store_); }

  std::function<void(JobStore&)> after_step_;
  JobStore* store_ = nullptr;
};

}  // namespace batchmill::testing
