// Hands plan entries to the devices that ask.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "actors/context.h"
#include "actors/open_attempts.h"
#include "actors/work_picker.h"

namespace batchmill {

struct DispatcherState {
  static inline const char* name = "dispatcher";
  std::unique_ptr<WorkPicker> picker;
  // The latest wish of each device that could not be met whole; tried again at every change.
  std::map<std::uint32_t, WorkRequest> hungry;
  bool retry_scheduled = false;  // the disk is full: nothing is admitted until it has space
};

// `device_fingerprints`: [devices] the model that each device runs; empty: lost. `attempts`:
// follows what is handed out. `fit`: makes entries fit the devices.
DispatcherActor::behavior_type dispatcher(DispatcherActor::stateful_pointer<DispatcherState> self,
                                          std::shared_ptr<ActorContext> context,
                                          std::vector<std::string> device_fingerprints,
                                          std::shared_ptr<OpenAttempts> attempts,
                                          WorkPicker::Fit fit);

}  // namespace batchmill
