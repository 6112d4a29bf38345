// Answers clients' requests and changes jobs.
#pragma once

#include <deque>
#include <map>
#include <memory>

#include "actors/context.h"
#include "actors/queries.h"

namespace batchmill {

struct ControlState {
  static inline const char* name = "control";
  std::unique_ptr<Queries> queries;
  // Requests that wait for answers. Peers that ask take turns, so that one who asks for much keeps
  // the others waiting for one answer, not for all of them.
  std::map<PeerId, std::deque<PeerMessage>> waiting;
  std::deque<PeerId> turns;  // each peer of `waiting` once
};

ControlActor::behavior_type control(ControlActor::stateful_pointer<ControlState> self,
                                    std::shared_ptr<ActorContext> context);

}  // namespace batchmill
