#include "tools/signals.h"

#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <stop_token>
#include <utility>

namespace batchmill {
namespace {

constexpr int kWakeSignal = SIGUSR2;

void wait_for_signals(const std::stop_token& stop, sigset_t set,
                      const SignalThread::Handler& on_signal) {
  std::map<int, int> counts;
  while (!stop.stop_requested()) {
    int signal = 0;
    if (::sigwait(&set, &signal) != 0 || stop.stop_requested()) continue;
    if (signal != kWakeSignal) on_signal(signal, ++counts[signal]);
  }
}

}  // namespace

SignalThread::SignalThread(std::initializer_list<int> signals, Handler on_signal) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  sigaddset(&set, kWakeSignal);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::jthread([set, handler = std::move(on_signal)](const std::stop_token& stop) {
    wait_for_signals(stop, set, handler);
  });
}

SignalThread::~SignalThread() {
  thread_.request_stop();
  ::pthread_kill(thread_.native_handle(), kWakeSignal);
}

void exit_at_once(int exit_code) { ::_exit(exit_code); }

}  // namespace batchmill
