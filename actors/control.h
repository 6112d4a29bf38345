// Answers clients' requests and changes jobs.
#pragma once

#include <memory>

#include "actors/context.h"
#include "actors/queries.h"

namespace batchmill {

struct ControlState {
  static inline const char* name = "control";
  std::unique_ptr<Queries> queries;
};

ControlActor::behavior_type control(ControlActor::stateful_pointer<ControlState> self,
                                    std::shared_ptr<ActorContext> context);

}  // namespace batchmill
