// The mark that a process which works on a data directory leaves in it while it lives
// (DATA/running), by which the next one knows how it ended. Lines that run when a process crashes
// may be why; nothing can be said against them when it is killed from outside or the machine goes
// down.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace batchmill {

// How the process before ended.
enum class LastEnd {
  kInOrder,  // or there was none, or it left no mark
  kFromOutside,  // killed, or the machine went down
  kItself,  // by a fatal signal, exit(), or maybe for want of memory
};

class LifeMark {
 public:
  // So many ends from outside in a row, without a line answered between them, are taken for what
  // they seem; from then on the process is held to end itself, in a way that leaves no trace (a
  // stack that overflows, a watchdog of memory).
  static constexpr std::uint32_t kMaxUnanswered = 10;

  // Reads the mark of the process before and puts this one's in its place. The caller holds the
  // directory's lock, and no more than eight of these live in one process. Where the mark cannot be
  // written there is none.
  explicit LifeMark(const std::string& directory);
  // The process ends in order: its mark goes.
  ~LifeMark();
  LifeMark(const LifeMark&) = delete;
  LifeMark& operator=(const LifeMark&) = delete;

  LastEnd last_end() const { return last_end_; }
  // For people, of kItself: "by SIGSEGV".
  const std::string& how() const { return how_; }
  // A line got its result. Any thread.
  void note_answer();
  // This process is about to end itself, in a way that nobody else notes (_exit()). Any thread.
  static void note_own_end();

 private:
  void read();
  void write();

  std::string path_;
  LastEnd last_end_ = LastEnd::kInOrder;
  std::string how_;
  std::uint32_t unanswered_ = 0;  // ends from outside in a row, without an answer between them
  int fd_ = -1;
  std::atomic<bool> has_answered_ = false;
};

}  // namespace batchmill
