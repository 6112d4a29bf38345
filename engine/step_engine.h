// What drives a device, whatever its model makes: requests go in, steps are run, what has ended
// comes out. One owner thread; no clock, no logging: the same calls give the same results.
#pragma once

#include <cstdint>

#include "engine/request.h"
#include "engine/types.h"

namespace batchmill {

class StepEngine {
 public:
  virtual ~StepEngine() = default;

  // Queues a request. Throws std::invalid_argument on one that can never run.
  virtual void add(Request request) = 0;

  // One step. Does nothing when there is no work. When the device throws, nothing has happened and
  // the exception goes on; the engine stays usable. The caller may take what has finished out of
  // the output, which is valid until the next step.
  virtual StepOutput& step() = 0;

  // After a step for which the device had no memory: from now on steps have at most half as many
  // rows. Returns that number, 0 if they cannot be smaller.
  virtual std::int32_t shrink_steps() = 0;

  // There may be memory again: from now on steps have an eighth of the options' rows more. Returns
  // their number, 0 if they are as large as the options say.
  virtual std::int32_t grow_steps() = 0;

  // Ends a request; it appears once in the next step's finished list as kCancelled. Unknown ids are
  // ignored.
  virtual void cancel(RequestId id) = 0;

  virtual bool has_work() const = 0;
  virtual EngineStats stats() const = 0;
};

}  // namespace batchmill
