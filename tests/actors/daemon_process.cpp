#include "tests/actors/daemon_process.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <stdexcept>

namespace batchmill::testing {
namespace {

constexpr std::chrono::seconds kStartPatience{60};

}  // namespace

DaemonProcess::DaemonProcess(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& argument : command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) throw std::runtime_error("pipe failed");
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  ::posix_spawn_file_actions_addclose(&actions, ends[0]);
  ::posix_spawn_file_actions_addclose(&actions, ends[1]);
  const int failed =
      ::posix_spawn(&pid_, command.front().c_str(), &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (failed != 0) {
    ::close(ends[0]);
    throw std::runtime_error("cannot start " + command.front());
  }
  reader_ = std::thread([this, fd = ends[0]] { read_stderr(fd); });

  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kStartPatience,
                    [this] { return closed_ || said_.find("ready") != std::string::npos; });
  if (said_.find("ready") != std::string::npos) return;
  const std::string said = said_;
  lock.unlock();
  kill();
  wait();
  reader_.join();
  throw std::runtime_error(command.front() + " did not get ready: " + said);
}

DaemonProcess::~DaemonProcess() {
  if (!waited_) {
    kill();
    wait();
  }
  reader_.join();
}

void DaemonProcess::kill() { ::kill(pid_, SIGKILL); }

void DaemonProcess::terminate() { ::kill(pid_, SIGTERM); }

bool DaemonProcess::wait_stopped() {
  int status = 0;
  ::waitpid(pid_, &status, WUNTRACED);
  waited_ = !WIFSTOPPED(status);
  return WIFSTOPPED(status);
}

void DaemonProcess::go_on() { ::kill(pid_, SIGCONT); }

int DaemonProcess::wait() {
  int status = 0;
  ::waitpid(pid_, &status, 0);
  waited_ = true;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

std::string DaemonProcess::said() {
  const std::lock_guard lock(mutex_);
  return said_;
}

void DaemonProcess::read_stderr(int fd) {
  std::array<char, 4096> buffer;
  while (true) {
    const ssize_t count = ::read(fd, buffer.data(), buffer.size());
    const std::lock_guard lock(mutex_);
    if (count <= 0) break;
    said_.append(buffer.data(), static_cast<std::size_t>(count));
    changed_.notify_all();
  }
  ::close(fd);
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

}  // namespace batchmill::testing
