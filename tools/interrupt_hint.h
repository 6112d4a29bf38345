// What a command that sends a job says when it is interrupted: how the upload goes on, or, once the
// job is stored, how to follow it. Owned by the command; its signal thread reads it. Thread-safe.
#pragma once

#include <mutex>
#include <string>

#include "tools/settings.h"

namespace batchmill {

// " --config FILE --data DIR …": the flags that lead another command to the same daemon.
std::string access_flags(const Settings& settings);

class InterruptHint {
 public:
  // `goes_on`: the command that goes on with the upload.
  explicit InterruptHint(std::string goes_on);

  void stored(const std::string& job, const Settings& settings);
  std::string text() const;

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

}  // namespace batchmill
