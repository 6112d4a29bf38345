// Reads one OpenAI batch line and checks everything that can be checked without a model. What the
// model decides (vocabulary, context, template) is checked by the preparer.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "queue/wire.h"

namespace batchmill {

enum class Endpoint : std::uint8_t { kChatCompletions = 1, kCompletions = 2, kEmbeddings = 3 };

// Why a line cannot run. `code` is one of interface.md's per-line codes.
struct LineError {
  std::string code;
  std::string
      message;  // names the field: "body.temperature must be a number in [0, 2], is \"hot\""
};

// The body's fields, checked and with their JSON types. Absent optional: not given or null.
struct BatchBody {
  std::string model = "default";
  // Chat: `messages` (content parts joined to a string, null content to ""), tools and template
  // variables stay JSON, for the template.
  Json messages;
  Json tools;  // null or a non-empty array
  Json chat_template_kwargs;  // null or an object
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  bool drop_oldest_turns = false;  // truncation "auto": until the prompt fits
  // Completions, embeddings: each prompt (input) a text or token ids.
  std::vector<std::variant<std::string, std::vector<std::int64_t>>> prompts;
  bool echo = false;
  // Embeddings.
  bool base64 = false;  // vectors as base64 of little-endian float32, not as numbers
  std::optional<std::int64_t> dimensions;

  std::optional<std::int64_t> max_tokens;
  std::int64_t min_tokens = 0;
  bool ignore_eos = false;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<std::int64_t> top_k;
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  std::optional<std::uint64_t> seed;  // negative 64-bit seeds are taken modulo 2^64
  std::vector<std::string> stop;
  std::vector<std::int64_t> stop_token_ids;
  std::vector<std::pair<std::int64_t, double>> logit_bias;
  std::optional<std::int32_t> logprobs;  // number of top candidates; absent: none
  std::int32_t n = 1;
  bool return_token_ids = false;
};

struct BatchLine {
  std::string custom_id;
  Endpoint endpoint = Endpoint::kChatCompletions;
  BatchBody body;
  std::vector<std::string> ignored_fields;  // unknown fields, "body.foo"
};

struct ParsedLine {
  std::optional<std::string> custom_id;  // whenever the line could be read that far
  std::optional<BatchLine> line;  // exactly one of line and error is set
  std::optional<LineError> error;
};

struct BatchLineLimits {
  std::int32_t max_choices = 128;  // prompts × n of a line
  std::int32_t max_top_logprobs = 20;
  std::int32_t max_inputs = 2048;  // of an embeddings line
};

ParsedLine parse_batch_line(std::string_view bytes, const BatchLineLimits& limits);

// The url that a line names, if it is one that this program knows, else "". Looks at the first 64
// KiB and reads no more JSON than that takes: lines of any length and depth cost the same.
std::string_view url_of_line(std::string_view bytes);

}  // namespace batchmill
