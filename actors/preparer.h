// Turns durable lines into plan entries or failures: reads chunks of each unfinished job in turn,
// has them tokenized in parallel, and commits them in the order of the lines.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "actors/context.h"
#include "actors/plan_refresh.h"

namespace batchmill {

// What preparing a job has come to, beyond what the store knows.
struct JobProgress {
  std::size_t chunk_lines = 0;  // grows: the first lines reach the device at once
  // A strict job is read twice: all lines are checked before one may run.
  std::uint64_t checked_through = 0;
  std::vector<JobState::JobError> errors;
  // Tokens of work that may still use the short lane.
  double short_lane_tokens = 0.0;
  std::set<std::string> warned;
};

struct PreparerState {
  static inline const char* name = "preparer";
  std::vector<PreparingWorkerActor> workers;
  std::deque<JobId> queue;  // jobs with something to prepare, each once
  std::map<JobId, JobProgress> progress;
  bool busy = false;  // a chunk is with the workers
  std::unique_ptr<PlanRefresh> refresh;  // until the plan is that of this start's models
};

PreparerActor::behavior_type preparer(PreparerActor::stateful_pointer<PreparerState> self,
                                      std::shared_ptr<ActorContext> context,
                                      std::shared_ptr<const LinePreparer> line_preparer);

}  // namespace batchmill
