#include "storage/life_mark.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <string_view>

namespace batchmill {
namespace {

constexpr std::array kFatalSignals = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV};
constexpr std::size_t kMaxMarks = 8;

// Of the marks of this process; -1: no mark. Read by signal handlers.
std::array<std::atomic<int>, kMaxMarks> mark_fds = {-1, -1, -1, -1, -1, -1, -1, -1};
std::array<struct sigaction, NSIG> former_actions;

// Safe in a signal handler.
void append_to_marks(std::string_view line) {
  for (const std::atomic<int>& fd : mark_fds) {
    if (fd >= 0) [[maybe_unused]]
      const ssize_t written = ::write(fd, line.data(), line.size());
  }
}

// Notes the signal, then leaves it to whom it belonged before: a sanitizer, or the kernel.
void on_fatal_signal(int signal, siginfo_t* info, void*) {
  char line[] = "signal 00\n";
  line[7] = static_cast<char>('0' + signal / 10);
  line[8] = static_cast<char>('0' + signal % 10);
  append_to_marks({line, sizeof(line) - 1});
  ::sigaction(signal, &former_actions[static_cast<std::size_t>(signal)], nullptr);
  // What the hardware refused it refuses again; what was sent is sent again.
  if (info->si_code <= 0) ::raise(signal);
}

void watch_ends_of_this_process() {
  struct sigaction action {};
  action.sa_sigaction = on_fatal_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (const int signal : kFatalSignals) {
    ::sigaction(signal, &action, &former_actions[static_cast<std::size_t>(signal)]);
  }
  std::atexit(LifeMark::note_own_end);
}

std::string first_line(const std::string& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

// Processes that the kernel has killed for want of memory since the machine started.
std::string out_of_memory_kills() {
  std::ifstream counters("/proc/vmstat");
  for (std::string name, count; counters >> name >> count;) {
    if (name == "oom_kill") return count;
  }
  return "";
}

std::string boot_id() { return first_line("/proc/sys/kernel/random/boot_id"); }

std::string signal_name(const std::string& number) {
  const char* const name = ::sigabbrev_np(std::atoi(number.c_str()));
  return name == nullptr ? "signal " + number : std::string("SIG") + name;
}

}  // namespace

LifeMark::LifeMark(const std::string& directory) : path_(directory + "/running") {
  static std::once_flag once;
  std::call_once(once, watch_ends_of_this_process);
  read();
  write();
}

LifeMark::~LifeMark() {
  if (fd_ < 0) return;
  for (std::atomic<int>& fd : mark_fds) {
    int mine = fd_;
    if (fd.compare_exchange_strong(mine, -1)) break;
  }
  ::unlink(path_.c_str());
  ::close(fd_);
}

void LifeMark::note_answer() {
  if (fd_ < 0 || has_answered_.exchange(true)) return;
  constexpr std::string_view kLine = "answered\n";
  [[maybe_unused]] const ssize_t written = ::write(fd_, kLine.data(), kLine.size());
}

void LifeMark::note_own_end() { append_to_marks("exit\n"); }

void LifeMark::read() {
  std::ifstream file(path_);
  if (!file) return;
  // A mark that is cut off is of a machine that went down while it was written.
  std::map<std::string, std::string> fields;
  for (std::string line; std::getline(file, line);) {
    const std::size_t space = std::min(line.find(' '), line.size());
    fields[line.substr(0, space)] = line.substr(std::min(space + 1, line.size()));
  }
  const bool same_boot = fields["boot"] == boot_id();
  last_end_ = LastEnd::kItself;
  if (fields.contains("signal")) {
    how_ = "by " + signal_name(fields["signal"]);
  } else if (fields.contains("exit")) {
    how_ = "by exit()";
  } else if (same_boot && fields["out_of_memory_kills"] != out_of_memory_kills()) {
    how_ = "maybe for want of memory: the kernel has killed for that meanwhile";
  } else {
    const int before = std::max(std::atoi(fields["unanswered"].c_str()), 0);
    unanswered_ = fields.contains("answered") ? 1 : static_cast<std::uint32_t>(before) + 1;
    if (unanswered_ <= kMaxUnanswered) {
      last_end_ = LastEnd::kFromOutside;
    } else {
      unanswered_ = kMaxUnanswered + 1;
      how_ = "unseen, " + std::to_string(kMaxUnanswered) + " times or more without an answer";
    }
  }
}

void LifeMark::write() {
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
  if (fd_ < 0) return;
  const std::string text = "boot " + boot_id() + "\nout_of_memory_kills " + out_of_memory_kills() +
                           "\nunanswered " + std::to_string(unanswered_) + "\n";
  if (::write(fd_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    ::unlink(path_.c_str());
    ::close(fd_);
    fd_ = -1;
    return;
  }
  for (std::atomic<int>& fd : mark_fds) {
    int none = -1;
    if (fd.compare_exchange_strong(none, fd_)) break;
  }
}

}  // namespace batchmill
