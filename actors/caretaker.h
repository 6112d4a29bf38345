// Looks after the store as a whole, one thing at a time: backups, compaction, pruning on request,
// and old jobs when [storage] retention is set. What takes minutes here holds nobody else up.
#pragma once

#include <memory>
#include <string>

#include "actors/context.h"

namespace batchmill {

struct CaretakerState {
  static inline const char* name = "caretaker";
  // A client that waits asks again now and then, under the same ticket: it gets the same answer.
  std::string last_ticket;
  Json last_answer;
};

CaretakerActor::behavior_type caretaker(CaretakerActor::stateful_pointer<CaretakerState> self,
                                        std::shared_ptr<ActorContext> context);

}  // namespace batchmill
