// A daemon that runs as a process of its own, so that it can be killed as an operator, the kernel
// or a power supply does it.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace batchmill::testing {

class DaemonProcess {
 public:
  // Starts `command` and waits until it has said "ready" on stderr. Throws std::runtime_error with
  // what it said instead.
  explicit DaemonProcess(const std::vector<std::string>& command);
  ~DaemonProcess();  // kills what still runs
  DaemonProcess(const DaemonProcess&) = delete;
  DaemonProcess& operator=(const DaemonProcess&) = delete;

  int pid() const { return pid_; }
  void kill();  // SIGKILL, which no process can handle; from any thread
  void terminate();  // SIGTERM
  // Waits until the process has stopped itself (SIGSTOP); false: it ended instead.
  bool wait_stopped();
  void go_on();  // SIGCONT
  // Waits for the end of the process: its exit code, or the negative number of the signal that
  // ended it.
  int wait();
  std::string said();  // on stderr, up to now

 private:
  void read_stderr(int fd);

  int pid_ = -1;
  bool waited_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string said_;  // on stderr
  bool closed_ = false;
  std::thread reader_;
};

}  // namespace batchmill::testing
