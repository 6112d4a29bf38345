// Plan entries of lines that were prepared when there was more room: for a larger context, or for
// devices with a larger KV cache. Owned by the dispatcher.
#pragma once

#include <memory>

#include "actors/context.h"
#include "actors/line_preparer.h"
#include "actors/work_picker.h"

namespace batchmill {

class PlanFit {
 public:
  PlanFit(std::shared_ptr<ActorContext> context, std::shared_ptr<const LinePreparer> line_preparer);

  // The entry as it is where its line has room on each device of its model; else the line is
  // prepared again, and what that made of it takes the entry's place in the plan or is the line's
  // failure. Throws StorageError with the plan as it was.
  WorkPicker::Fitted operator()(const PlanKey& key, PlanEntry entry) const;

 private:
  std::shared_ptr<ActorContext> context_;
  std::shared_ptr<const LinePreparer> line_preparer_;
};

}  // namespace batchmill
