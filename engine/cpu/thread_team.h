// Threads that share loops. Loops follow each other within microseconds in a step, so a thread that
// has done its part looks out for the next one a while before it sleeps. Owned by a CpuBackend; one
// thread at a time calls it and takes part as number 0.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace batchmill {

// Whose threads do the work.
enum class TeamKind : std::uint8_t {
  kOwn,
  // OpenMP's, where oneDNN uses them too: two sets of threads would stand in each other's way.
  kOpenMp,
};

class ThreadTeam {
 public:
  ThreadTeam(std::int32_t num_threads, TeamKind kind);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  std::int32_t size() const { return num_threads_; }

  // Calls work(thread) for all numbers below `num_threads`, at most size(), at the same time.
  template <typename Work>
  void run(std::int32_t num_threads, const Work& work) {
    if (num_threads <= 1) return work(0);
    run_task(num_threads, {[](const void* context, std::int32_t thread) {
                             (*static_cast<const Work*>(context))(thread);
                           },
                           &work});
  }

  // Calls work(i) or work(i, thread) for all i below `count`; each thread gets an equal range.
  template <typename Work>
  void divide(std::int32_t num_threads, std::int32_t count, const Work& work) {
    run(num_threads, [&](std::int32_t thread) {
      const auto begin = [&](std::int64_t part) {
        return static_cast<std::int32_t>(count * part / num_threads);
      };
      for (std::int32_t i = begin(thread); i < begin(thread + 1); ++i) call(work, i, thread);
    });
  }

  // The same for pieces of work that differ: a thread takes the next one when it is free.
  template <typename Work>
  void take_turns(std::int32_t num_threads, std::int32_t count, const Work& work) {
    std::atomic<std::int32_t> next{0};
    run(num_threads, [&](std::int32_t thread) {
      for (std::int32_t i = 0; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) {
        call(work, i, thread);
      }
    });
  }

 private:
  struct Task {
    void (*call)(const void* context, std::int32_t thread) = nullptr;
    const void* context = nullptr;
  };

  template <typename Work>
  static void call(const Work& work, std::int32_t index, std::int32_t thread) {
    if constexpr (requires { work(index, thread); }) {
      work(index, thread);
    } else {
      work(index);
    }
  }

  void run_task(std::int32_t num_threads, Task task);
  void serve(std::int32_t thread);

  std::int32_t num_threads_;
  TeamKind kind_;
  // Written before round_ grows, read after that has been seen.
  Task task_;
  std::int32_t task_threads_ = 0;
  bool stopping_ = false;
  alignas(64) std::atomic<std::uint32_t> round_{0};
  alignas(64) std::atomic<std::int32_t> num_busy_{0};
  std::vector<std::thread> threads_;
};

}  // namespace batchmill
