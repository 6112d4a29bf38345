// Brings the plan up to date with the models of this start.
#pragma once

#include "actors/context.h"
#include "actors/line_preparer.h"

namespace batchmill {

// Lines planned for a model whose fingerprint has changed (weights, tokenizer, template) are
// prepared again; lines of a model that is configured no more are parked: they stay planned, and
// the job's warnings say so. No device runs either kind, so a dispatcher may be at work meanwhile.
// Throws StorageError.
void refresh_plan(ActorContext& context, const LinePreparer& line_preparer);

}  // namespace batchmill
