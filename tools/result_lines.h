// Fetches a job's result lines page by page from whoever answers. One thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "queue/wire.h"

namespace batchmill {

// Sends a request, gives its answer.
using Ask = std::function<WireMessage(const Json& request)>;

struct ResultSelection {
  std::string job;
  std::string order = "input";  // or "completed"
  std::string side = "all";  // or "output", "errors"
  std::string custom_id;  // with `one`: only this line's
  bool one = false;
  bool failed_input = false;  // the original lines of the failed ones instead
};

struct ResultCounts {
  std::uint64_t outputs = 0;  // of the lines seen, whichever side was wanted
  std::uint64_t errors = 0;
};

class ResultLines {
 public:
  ResultLines(Ask ask, ResultSelection selection);

  // Hands on what is there and not yet seen, without line ends. True when the job has ended and all
  // was handed on.
  bool fetch(const std::function<void(std::string_view line)>& sink);

  const ResultCounts& counts() const { return counts_; }

 private:
  Ask ask_;
  ResultSelection selection_;
  std::uint64_t next_ = 0;
  ResultCounts counts_;
};

// An output line is a failure when its "error" is not null.
bool is_failure(const Json& output_line);

}  // namespace batchmill
