// The values that actors send each other. Those between the dispatcher and a device worker are
// serialisable (inspect), so that a worker can live in another process.
#pragma once

#include <caf/all.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "actors/line_preparer.h"
#include "engine/engine.h"
#include "queue/job_server.h"
#include "storage/records.h"

namespace batchmill {

// A line on its way to a device.
struct WorkItem {
  LineKey key;
  std::string plan_key;
  std::uint32_t attempt = 0;
  std::string model;
  std::vector<std::vector<TokenId>> prompts;
  std::string request;  // LineWork, encoded
  // Leading tokens of the first prompt that lines still to come begin with too; -1: not known.
  std::int32_t num_wanted_tokens = -1;
};

// A device's wish for more lines of one model.
struct WorkRequest {
  std::uint32_t device = 0;  // index of the device worker
  std::uint32_t max_lines = 0;
  std::uint64_t max_tokens = 0;  // prompt tokens
};

// A line that a device has ended: outputs, or why there are none.
struct LineCompletion {
  WorkItem item;
  std::string device;
  std::vector<RequestOutput> outputs;  // [prompts]; empty on failure
  std::string error_code;
  std::string error_message;
  std::uint64_t prefill_us = 0;
  std::uint64_t decode_us = 0;
  std::int64_t admitted_us = 0;
  std::int64_t first_token_us = 0;
};

// A frame from a client.
struct PeerMessage {
  PeerId peer;
  WireMessage message;
};

// Part of a chunk of lines: read by one preparing worker, and its answer.
struct ChunkPart {
  PreparingJob job;
  std::shared_ptr<const std::vector<StoredLine>> lines;
  std::size_t begin = 0;
  std::size_t end = 0;
};
struct PreparedPart {
  std::vector<PreparedLine> lines;  // [end − begin]
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, JobId& x) {
  return f(caf::meta::type_name("JobId"), x.bytes);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, LineKey& x) {
  return f(caf::meta::type_name("LineKey"), x.job, x.line);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, WorkItem& x) {
  return f(caf::meta::type_name("WorkItem"), x.key, x.plan_key, x.attempt, x.model, x.prompts,
           x.request, x.num_wanted_tokens);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, WorkRequest& x) {
  return f(caf::meta::type_name("WorkRequest"), x.device, x.max_lines, x.max_tokens);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, TokenLogprob& x) {
  return f(caf::meta::type_name("TokenLogprob"), x.token, x.logprob);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, PositionLogprobs& x) {
  return f(caf::meta::type_name("PositionLogprobs"), x.chosen, x.top);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Choice& x) {
  return f(caf::meta::type_name("Choice"), x.token_ids, x.text, x.finish_reason, x.logprobs);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, RequestOutput& x) {
  return f(caf::meta::type_name("RequestOutput"), x.id, x.choices, x.prompt_logprobs,
           x.num_prompt_tokens, x.num_cached_tokens, x.num_recomputed_tokens,
           x.num_completion_tokens, x.num_preemptions, x.error, x.embedding);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, LineCompletion& x) {
  return f(caf::meta::type_name("LineCompletion"), x.item, x.device, x.outputs, x.error_code,
           x.error_message, x.prefill_us, x.decode_us, x.admitted_us, x.first_token_us);
}

}  // namespace batchmill

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(batchmill::PeerMessage)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(batchmill::ChunkPart)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(batchmill::PreparedPart)
