// Brings the plan up to date with the models of this start, a page at a time. Owned by the
// preparer.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "actors/context.h"
#include "actors/line_preparer.h"

namespace batchmill {

// Lines planned for a model whose fingerprint has changed (weights, tokenizer, template) are
// prepared again and keep their lane; lines of a model that is configured no more are parked: they
// stay planned, and the job's warnings say so. No device runs either kind, so a dispatcher may be
// at work meanwhile.
class PlanRefresh {
 public:
  PlanRefresh(std::shared_ptr<ActorContext> context,
              std::shared_ptr<const LinePreparer> line_preparer);

  // Deals with the next page. False when nothing is left. Throws StorageError; the page is then
  // looked at again by the next call.
  bool step();

 private:
  std::shared_ptr<ActorContext> context_;
  std::shared_ptr<const LinePreparer> line_preparer_;
  std::vector<PlanLevel> levels_;  // of other fingerprints, the one in turn last
  std::uint64_t num_prepared_ = 0;
};

}  // namespace batchmill
