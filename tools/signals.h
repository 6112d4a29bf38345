// Signals as events on a thread of their own. Made first in main, before any other thread: threads
// started later inherit the blocked signals, so only this one sees them.
#pragma once

#include <functional>
#include <initializer_list>
#include <thread>

namespace batchmill {

class SignalThread {
 public:
  // `on_signal`: called on the signal thread with the signal's number and how many of that number
  // have come, this one included.
  using Handler = std::function<void(int signal, int count)>;
  SignalThread(std::initializer_list<int> signals, Handler on_signal);
  ~SignalThread();
  SignalThread(const SignalThread&) = delete;
  SignalThread& operator=(const SignalThread&) = delete;

 private:
  std::jthread thread_;
};

// Ends the process now, without destructors: nothing durable is lost by that.
[[noreturn]] void exit_at_once(int exit_code);

}  // namespace batchmill
