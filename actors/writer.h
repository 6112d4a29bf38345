// The only one that writes the results of devices: renders them, writes them in groups, and takes
// each line's first answer of the attempt now in flight.
#pragma once

#include <memory>
#include <vector>

#include "actors/context.h"

namespace batchmill {

struct WriterState {
  static inline const char* name = "writer";
  std::vector<LineCompletion> pending;
  bool flush_scheduled = false;
};

WriterActor::behavior_type writer(WriterActor::stateful_pointer<WriterState> self,
                                  std::shared_ptr<ActorContext> context);

}  // namespace batchmill
