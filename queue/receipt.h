// What a JobServer has read and its handler is still working on. Internal to queue/.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "queue/wake_up.h"

namespace batchmill {

// What is being worked on: messages that were received and whose receipts live. Shared with the
// receipts, which may outlive the server.
struct Workload {
  std::atomic<std::uint64_t> bytes = 0;
  std::atomic<bool> reading_waits = false;  // until there is less of it
  WakeUp wake_up;
};

// Of one message; any thread may let the last copy go.
class Receipt {
 public:
  Receipt(std::shared_ptr<Workload> workload, std::shared_ptr<std::atomic<int>> open_requests,
          std::uint64_t bytes)
      : workload_(std::move(workload)), open_requests_(std::move(open_requests)), bytes_(bytes) {
    workload_->bytes += bytes_;
    if (open_requests_) ++*open_requests_;
  }
  ~Receipt() {
    if (open_requests_) --*open_requests_;
    workload_->bytes -= bytes_;
    if (workload_->reading_waits) workload_->wake_up.set();
  }
  Receipt(const Receipt&) = delete;
  Receipt& operator=(const Receipt&) = delete;

 private:
  std::shared_ptr<Workload> workload_;
  std::shared_ptr<std::atomic<int>> open_requests_;  // of the peer; null: it is no request
  std::uint64_t bytes_;
};

}  // namespace batchmill
