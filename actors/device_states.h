// The daemon's devices, which model each runs, and what is wrong with those that were lost: for
// whoever asks why lines wait. Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "queue/wire.h"

namespace batchmill {

class DeviceStates {
 public:
  struct State {
    std::string name;  // "cuda:0"
    std::string model;
    std::string reason;  // why it failed
    std::string trouble;  // a sentence for people; empty: the device is in use
    bool lines_wait = false;  // the model has no device at all
  };

  void add(std::string name, std::string model);
  // What the device's steps failed of; before it is lost.
  void note_failure(std::uint32_t device, std::string reason);
  void set_trouble(std::uint32_t device, std::string trouble, bool lines_wait);

  State state(std::uint32_t device) const;
  std::vector<std::string> troubles() const;
  // [{model, device, trouble: text or null, lines_wait}]
  Json describe() const;

 private:
  mutable std::mutex mutex_;
  std::vector<State> states_;
};

}  // namespace batchmill
