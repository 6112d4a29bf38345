// Operations that make rows of the same rows of others are put off until something needs more than
// rows: then each thread takes some rows through all of them, and what one leaves for the next
// stays in that thread's cache. Owned by a CpuBackend; one thread calls it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <vector>

#include "engine/cpu/thread_team.h"

namespace batchmill {

class RowChain {
 public:
  // Most rows that a thread takes at once.
  static constexpr std::int32_t kBlockRows = 48;

  explicit RowChain(ThreadTeam* team);

  // work(first row, number of rows, thread) for parts of all rows, not before finish(). What it
  // refers to must last until then.
  template <typename Work>
  void add(std::int32_t num_rows, const Work& work) {
    static_assert(sizeof(Work) <= kStateBytes && std::is_trivially_copyable_v<Work>);
    if (num_rows != num_rows_) finish();
    num_rows_ = num_rows;
    Link& link = links_.emplace_back();
    new (link.state) Work(work);
    link.call = [](const std::byte* state, std::int32_t first, std::int32_t count,
                   std::int32_t thread) {
      (*std::launder(reinterpret_cast<const Work*>(state)))(first, count, thread);
    };
  }

  // Does what was put off.
  void finish() {
    if (!links_.empty()) run();
  }

 private:
  static constexpr std::size_t kStateBytes = 256;
  struct Link {
    alignas(16) std::byte state[kStateBytes];
    void (*call)(const std::byte* state, std::int32_t first, std::int32_t count,
                 std::int32_t thread) = nullptr;
  };

  void run();
  std::int32_t block_rows(std::int32_t rows_left) const;

  ThreadTeam& team_;
  std::vector<Link> links_;
  std::int32_t num_rows_ = 0;
};

}  // namespace batchmill
