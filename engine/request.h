// What goes into an engine and what comes out: requests, outputs, the work of a step, counters.
// Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/sampling_params.h"
#include "engine/types.h"

namespace batchmill {

// A prompt with its number of choices. A completions line with several prompts is several Requests.
struct Request {
  RequestId id = 0;
  std::vector<TokenId> prompt;  // at least one token
  std::int32_t num_choices = 1;
  std::int32_t first_choice = 0;  // index of choice 0 in the line: keys the random draws
  // Leading prompt tokens that requests to come begin with as well: the KV of all others is given
  // up first. -1: not known, all is worth keeping.
  std::int32_t num_wanted_tokens = -1;
  SamplingParams params;
};

struct TokenLogprob {
  TokenId token = kNoToken;
  float logprob = 0.0f;
};

// The chosen token's log-probability and those of the best candidates, best first.
struct PositionLogprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;
};

struct Choice {
  std::vector<TokenId> token_ids;  // generated ids, the ending stop token included
  std::string text;  // decoded, special tokens left out, cut before a stop string; valid UTF-8
  FinishReason finish_reason = FinishReason::kNone;
  std::vector<PositionLogprobs> logprobs;  // one per generated token that the text keeps, if asked
};

// A finished (or cancelled) request.
struct RequestOutput {
  RequestId id = 0;
  // Not empty: the request failed (its logits held NaN, +infinity or nothing to choose from) and
  // the choices without a finish reason are incomplete. Other requests go on.
  std::string error;
  std::vector<Choice> choices;
  std::vector<PositionLogprobs> prompt_logprobs;  // [prompt − 1], from position 1 on, if asked
  std::int32_t num_prompt_tokens = 0;
  std::int32_t num_cached_tokens = 0;  // prompt tokens never computed for this request
  std::int32_t num_recomputed_tokens = 0;  // computed again after a preemption
  std::int32_t num_completion_tokens = 0;  // over all choices
  std::int32_t num_preemptions = 0;
  std::vector<float> embedding;  // of an encoder, unit length; then there are no choices
};

// What one step computed for one request. Rows of recomputation count as prefill too.
struct RequestWork {
  RequestId id = 0;
  std::int32_t num_prefill_tokens = 0;
  std::int32_t num_decode_tokens = 0;
  bool first_token = false;  // this step produced the request's first token
};

struct StepOutput {
  std::vector<RequestWork> work;  // every request with rows in this step
  std::vector<RequestOutput> finished;
  std::int32_t num_tokens = 0;  // rows that entered layer 0
};

struct EngineStats {
  std::int32_t num_waiting = 0;  // requests not yet admitted to a step
  std::int32_t num_running = 0;  // requests with at least one running choice
  std::int32_t num_running_seqs = 0;
  std::int32_t num_blocks = 0;
  std::int32_t num_free_blocks = 0;  // unreferenced, tree or not
  std::int32_t num_cached_blocks = 0;  // unreferenced blocks whose content can be reused
  std::int32_t num_empty_slots = 0;  // of the blocks that sequences hold: without a token
  std::int64_t waiting_prompt_tokens = 0;
  std::int64_t prefix_queries_tokens = 0;  // since construction
  std::int64_t prefix_hits_tokens = 0;
  std::int64_t num_preemptions = 0;
  std::int64_t num_rows = 0;  // rows that entered layer 0
  std::int64_t num_dropped_rows = 0;  // besides them: of sequences that had ended meanwhile
  std::int64_t num_prefill_rows = 0;
  std::int64_t num_decode_rows = 0;
};

}  // namespace batchmill
