// Shows on stderr how a job gets on: a bar that is redrawn on a terminal, a plain line every few
// seconds elsewhere, nothing with --quiet. One thread.
#pragma once

#include <chrono>
#include <string>

#include "queue/wire.h"

namespace batchmill {

class Progress {
 public:
  explicit Progress(bool quiet);

  // `batch`: the job's batch object.
  void show(const Json& batch);
  // Takes the bar away; what is printed next starts on a clean line.
  void clear();

 private:
  bool quiet_;
  bool terminal_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_;
  std::string last_text_;
};

// "12 done, 3 failed of 500 lines, 1234 tokens/s, 1m20s left".
std::string progress_text(const Json& batch);

// Whole seconds for people: "45s", "1m20s", "3h05m".
std::string human_seconds(std::int64_t seconds);

}  // namespace batchmill
