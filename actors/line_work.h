// What a device and the writer need to know of a line besides its prompts' token ids. Kept in the
// plan entry as MessagePack, so that a restart needs no second look at the line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/sampling_params.h"
#include "queue/batch_line.h"

namespace batchmill {

// What `truncation: "auto"` left out of the conversation.
struct Truncation {
  std::int32_t dropped_turns = 0;
  std::int32_t dropped_messages = 0;
  bool operator==(const Truncation&) const = default;
};

struct LineWork {
  std::string custom_id;
  Endpoint endpoint = Endpoint::kChatCompletions;
  std::string requested_model;  // body.model as written; echoed in the response
  std::int32_t num_choices = 1;  // n, per prompt
  bool echo = false;
  std::vector<std::string> echo_texts;  // [prompts] with echo: what the answer begins with
  bool return_token_ids = false;
  bool base64 = false;  // of an embeddings line's vectors
  std::optional<Truncation> truncation;  // set if the line asked for it
  std::int64_t queued_us = 0;  // when the line became durable, unix microseconds
  SamplingParams params;
};

std::string encode_line_work(const LineWork& work);
// Throws std::runtime_error when the bytes are none.
LineWork decode_line_work(std::string_view bytes);

}  // namespace batchmill
