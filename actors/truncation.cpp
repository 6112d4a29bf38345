#include "actors/truncation.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace batchmill {
namespace {

bool is_instruction(const Json& message) {
  const std::string role = message.value("role", "");
  return role == "system" || role == "developer";
}

Json without_oldest(const Json& messages, const ConversationTurns& turns, std::size_t num_dropped) {
  Json kept = Json::array();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (i < turns.num_leading || i >= turns.begins[num_dropped]) kept.push_back(messages[i]);
  }
  return kept;
}

}  // namespace

ConversationTurns find_turns(const Json& messages) {
  ConversationTurns turns;
  while (turns.num_leading < messages.size() && is_instruction(messages[turns.num_leading])) {
    ++turns.num_leading;
  }
  if (turns.num_leading < messages.size()) turns.begins.push_back(turns.num_leading);
  for (std::size_t i = turns.num_leading + 1; i < messages.size(); ++i) {
    if (messages[i].value("role", "") != "user") continue;
    std::size_t begin = i;
    while (begin - 1 > turns.num_leading && is_instruction(messages[begin - 1])) --begin;
    turns.begins.push_back(begin);
  }
  return turns;
}

TruncatedPrompt drop_oldest_turns(const Json& messages, std::int64_t prompt_tokens,
                                  const std::function<Prompts(const Json&)>& build) {
  const auto fits = [&](const Prompts& prompts) {
    return static_cast<std::int64_t>(prompts.token_ids.front().size()) <= prompt_tokens;
  };
  TruncatedPrompt truncated;
  truncated.prompts = build(messages);
  const ConversationTurns turns = find_turns(messages);
  if (fits(truncated.prompts) || turns.begins.size() < 2) return truncated;

  // Dropping `too_few` turns is not enough; `enough` is, or is all that may go.
  std::size_t too_few = 0;
  std::size_t enough = turns.begins.size() - 1;
  truncated.prompts = build(without_oldest(messages, turns, enough));
  if (fits(truncated.prompts)) {
    while (enough - too_few > 1) {
      const std::size_t middle = too_few + (enough - too_few) / 2;
      Prompts prompts = build(without_oldest(messages, turns, middle));
      if (fits(prompts)) {
        enough = middle;
        truncated.prompts = std::move(prompts);
      } else {
        too_few = middle;
      }
    }
  }
  truncated.dropped_turns = static_cast<std::int32_t>(enough);
  truncated.dropped_messages = static_cast<std::int32_t>(turns.begins[enough] - turns.num_leading);
  return truncated;
}

std::int64_t untruncated_prompt_tokens(std::int64_t context_tokens, std::int64_t max_tokens) {
  return context_tokens -
         std::clamp<std::int64_t>(max_tokens, 1, std::max<std::int64_t>(context_tokens / 4, 1));
}

}  // namespace batchmill
