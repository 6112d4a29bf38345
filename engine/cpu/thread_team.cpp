#include "engine/cpu/thread_team.h"

namespace batchmill {
namespace {

// How often a thread looks before it sleeps: 50 to 100 microseconds. Waking a thread that sleeps
// takes about as long.
constexpr int kLooks = 2000;

// Returns when `value` is no longer `old`.
template <typename T>
void wait_while(const std::atomic<T>& value, T old) {
  for (int i = 0; i < kLooks; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    __builtin_ia32_pause();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadTeam::ThreadTeam(std::int32_t num_threads, TeamKind kind)
    : num_threads_(num_threads), kind_(kind) {
  if (kind == TeamKind::kOpenMp) return;
  threads_.reserve(static_cast<std::size_t>(num_threads));
  try {
    for (std::int32_t i = 1; i < num_threads; ++i) threads_.emplace_back([this, i] { serve(i); });
  } catch (...) {
    // Those that were started still run.
    stopping_ = true;
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    throw;
  }
}

ThreadTeam::~ThreadTeam() {
  stopping_ = true;
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadTeam::run_task(std::int32_t num_threads, Task task) {
  if (kind_ == TeamKind::kOpenMp) {
    // A loop, because OpenMP may grant fewer threads.
#pragma omp parallel for schedule(static, 1) num_threads(num_threads)
    for (std::int32_t thread = 0; thread < num_threads; ++thread) task.call(task.context, thread);
    return;
  }
  task_ = task;
  task_threads_ = num_threads;
  // All threads answer, so that none still looks at a task when the next one is written.
  num_busy_.store(static_cast<std::int32_t>(threads_.size()), std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  task.call(task.context, 0);
  for (std::int32_t busy = 0; (busy = num_busy_.load(std::memory_order_acquire)) > 0;) {
    wait_while(num_busy_, busy);
  }
}

void ThreadTeam::serve(std::int32_t thread) {
  for (std::uint32_t round = 0;; ++round) {
    wait_while(round_, round);
    if (stopping_) return;
    if (thread < task_threads_) task_.call(task_.context, thread);
    if (num_busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) num_busy_.notify_all();
  }
}

}  // namespace batchmill
