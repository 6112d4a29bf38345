#include "storage/job.h"

#include <algorithm>

namespace batchmill {

std::vector<std::string> kept_options(const JobRequest& first, const JobRequest& now) {
  std::vector<std::string> kept;
  if (!now.name.empty() && now.name != first.name) kept.emplace_back("name");
  if (now.priority != first.priority) kept.emplace_back("priority");
  if (now.deadline_s != 0 && now.deadline_s != first.deadline_s) kept.emplace_back("deadline");
  if (!now.metadata.empty() && now.metadata != first.metadata) kept.emplace_back("metadata");
  return kept;
}

std::int64_t JobState::end_time_s() const {
  return std::max({completed_at_s, failed_at_s, expired_at_s, cancelled_at_s});
}

void JobCounters::add(const LineResult& result) {
  ++(result.outcome == LineOutcome::kCompleted ? completed : failed);
  usage += result.usage;
  result_bytes += result.output.size();
}

bool Job::ended() const { return state.end_time_s() != 0; }

std::string_view Job::status() const {
  if (state.failed_at_s != 0) return "failed";
  if (state.cancelled_at_s != 0) return "cancelled";
  if (state.expired_at_s != 0) return "expired";
  if (state.completed_at_s != 0) return "completed";
  if (state.cancelling_at_s != 0) return "cancelling";
  if (state.finalizing_at_s != 0) return "finalizing";
  if (state.in_progress_at_s != 0) return "in_progress";
  return "validating";
}

}  // namespace batchmill
