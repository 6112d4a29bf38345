// Starts the actors, starts them anew when they die, and does what is due every second: deadlines,
// idle uploads, the plan entries of ended jobs, memory that is free.
#pragma once

#include <caf/all.hpp>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/context.h"
#include "actors/device_worker.h"
#include "actors/heap.h"

namespace batchmill {

// What the supervisor starts actors with.
struct SupervisorSetup {
  std::shared_ptr<const LinePreparer> line_preparer;
  std::vector<DeviceSetup> devices;
  std::vector<std::string> device_fingerprints;  // [devices]
  // Makes the device that takes the place of a lost one whose model has no other; nothing: there is
  // none. Loads the model. Throws std::runtime_error.
  std::function<std::optional<DeviceSetup>(std::uint32_t lost)> replace;
  // Called when actors die faster than starting them anew can help; on the supervisor's thread.
  std::function<void(std::string)> on_fatal;
};

struct SupervisorState {
  static inline const char* name = "supervisor";
  std::deque<std::int64_t> restarts_s;  // steady-clock seconds of the latest ones
  std::map<JobId, std::int64_t> deadlines_s;  // of unfinished jobs that have one, steady clock
  std::set<std::uint32_t> lost;  // devices that are not used any more
  std::set<caf::actor_addr> ending;  // of the last device group, not dead yet; then comes …
  std::function<void()> start_group;  // … the next one
  Heap heap;
  bool stopping = false;
};

// Messages: ready_atom: answers true, once all actors are there; (flush_atom, bool): kills all
// actors, answers true; tick_atom: INTERNAL, every second; (replaced_atom, DeviceSetup): INTERNAL,
// takes the place of the lost device of that index; (lost_atom, number, text): INTERNAL, nothing
// does, and why.
caf::behavior supervisor(caf::stateful_actor<SupervisorState>* self,
                         std::shared_ptr<ActorContext> context, SupervisorSetup setup);

}  // namespace batchmill
