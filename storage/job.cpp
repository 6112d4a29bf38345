#include "storage/job.h"

namespace batchmill {

bool Job::ended() const {
  return state.completed_at_s != 0 || state.failed_at_s != 0 || state.expired_at_s != 0 ||
         state.cancelled_at_s != 0;
}

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
