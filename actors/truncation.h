// `truncation: "auto"`: leaves out the oldest turns of a conversation until its prompt fits. Free
// functions without state; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "actors/prompt_builder.h"
#include "queue/batch_line.h"

namespace batchmill {

// A turn is a user's message with all that follows it up to the next one (answers, tool calls and
// their results) and the system messages directly before it. What stands before the first user's
// message, if it is not leading, is a turn too.
struct ConversationTurns {
  std::size_t num_leading = 0;  // system and developer messages at the beginning, in no turn
  std::vector<std::size_t> begins;  // [turns] each turn's first message, ascending
};
ConversationTurns find_turns(const Json& messages);

struct TruncatedPrompt {
  Prompts prompts;
  std::int32_t dropped_turns = 0;
  std::int32_t dropped_messages = 0;
};

// Drops the fewest turns that leave a prompt of at most `prompt_tokens`, all but the newest if none
// do. `build` makes the prompt of messages; it is called once when nothing must go, else about
// log2(turns) times.
TruncatedPrompt drop_oldest_turns(const Json& messages, std::int64_t prompt_tokens,
                                  const std::function<Prompts(const Json&)>& build);

// How long a prompt may be for nothing to be dropped: an answer keeps min(max_tokens, a quarter of
// the context).
std::int64_t untruncated_prompt_tokens(std::int64_t context_tokens, std::int64_t max_tokens);

}  // namespace batchmill
