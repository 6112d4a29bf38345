#include "actors/upload_memory.h"

#include <algorithm>

namespace batchmill {
namespace {

std::uint64_t unfinished_bytes_of(const Upload& upload) {
  return upload.session->received_bytes() - upload.session->durable_bytes();
}

}  // namespace

std::uint64_t credit_of(const IntakeState& state, const Upload& upload, const QueueOptions& queue) {
  std::uint64_t others_bytes = 0;
  for (const auto& [id, other] : state.uploads) {
    if (&other != &upload && other.session) others_bytes += other.session->granted_bytes();
  }
  const std::uint64_t total = queue.total_credit_bytes;
  const std::uint64_t left = total - std::min(total, others_bytes);
  const std::uint64_t share = total / std::max<std::uint64_t>(state.uploads.size(), 1);
  return std::min(queue.credit_bytes, std::max(queue.min_credit_bytes, std::min(share, left)));
}

std::uint64_t unfinished_bytes(const IntakeState& state) {
  std::uint64_t num_bytes = 0;
  for (const auto& [id, upload] : state.uploads) num_bytes += unfinished_bytes_of(upload);
  return num_bytes;
}

std::map<JobId, Upload>::iterator longest_silent(IntakeState& state, const JobId& current) {
  auto oldest = state.uploads.end();
  for (auto it = state.uploads.begin(); it != state.uploads.end(); ++it) {
    const Upload& upload = it->second;
    const bool idle = it->first != current && upload.lines.empty() &&
                      upload.written_bytes <= upload.session->durable_bytes() &&
                      upload.end_request.is_null() && unfinished_bytes_of(upload) != 0;
    if (!idle) continue;
    if (oldest == state.uploads.end() || upload.active_s < oldest->second.active_s) oldest = it;
  }
  return oldest;
}

}  // namespace batchmill
