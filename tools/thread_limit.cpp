#include "tools/thread_limit.h"

#include <fmt/format.h>

#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

#include "tools/exit_code.h"

namespace batchmill {

void check_thread_limit(std::size_t num_threads) {
  std::atomic<bool> may_end{false};
  std::vector<std::jthread> threads;
  threads.reserve(num_threads);
  bool are_enough = true;
  try {
    while (threads.size() < num_threads) {
      threads.emplace_back([&may_end] { may_end.wait(false); });
    }
  } catch (const std::system_error&) {
    are_enough = false;
  }
  may_end = true;
  may_end.notify_all();
  if (are_enough) return;
  throw ToolError(kExitUsage,
                  fmt::format("{} threads can be started, and up to {} are needed: raise the limit "
                              "on processes or memory (ulimit -u, ulimit -v, TasksMax)",
                              threads.size(), num_threads));
}

}  // namespace batchmill
