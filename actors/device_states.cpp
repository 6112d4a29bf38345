#include "actors/device_states.h"

#include <utility>

namespace batchmill {

void DeviceStates::add(std::string name, std::string model) {
  const std::lock_guard lock(mutex_);
  State& state = states_.emplace_back();
  state.name = std::move(name);
  state.model = std::move(model);
}

void DeviceStates::note_failure(std::uint32_t device, std::string reason) {
  const std::lock_guard lock(mutex_);
  states_.at(device).reason = std::move(reason);
}

void DeviceStates::set_trouble(std::uint32_t device, std::string trouble, bool lines_wait) {
  const std::lock_guard lock(mutex_);
  states_.at(device).trouble = std::move(trouble);
  states_.at(device).lines_wait = lines_wait;
}

DeviceStates::State DeviceStates::state(std::uint32_t device) const {
  const std::lock_guard lock(mutex_);
  return states_.at(device);
}

std::vector<std::string> DeviceStates::troubles() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> troubles;
  for (const State& state : states_) {
    if (!state.trouble.empty()) troubles.push_back(state.trouble);
  }
  return troubles;
}

Json DeviceStates::describe() const {
  const std::lock_guard lock(mutex_);
  Json devices = Json::array();
  for (const State& state : states_) {
    devices.push_back({{"model", state.model},
                       {"device", state.name},
                       {"trouble", state.trouble.empty() ? Json() : Json(state.trouble)},
                       {"lines_wait", state.lines_wait}});
  }
  return devices;
}

}  // namespace batchmill
