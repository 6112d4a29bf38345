#include "tests/fuzz/batch_line_check.h"

#include <cmath>

#include "queue/body_fields.h"
#include "queue/json_reader.h"
#include "tests/fuzz/fuzz_target.h"

namespace batchmill::fuzz {
namespace {

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_sequence_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

void check_finite(const std::optional<double>& value) {
  require(!value || std::isfinite(*value), "a number that is not finite was taken");
}

void check_body(const BatchBody& body, Endpoint endpoint) {
  for (const auto& value :
       {body.temperature, body.top_p, body.min_p, body.repetition_penalty,
        std::optional(body.presence_penalty), std::optional(body.frequency_penalty)}) {
    check_finite(value);
  }
  require(body.n >= 1 && body.n <= 128, "n is out of range");
  require(!body.max_tokens || *body.max_tokens >= 0, "max_tokens is negative");
  require(!body.logprobs || (*body.logprobs >= 0 && *body.logprobs <= 20),
          "logprobs are out of range");
  if (endpoint == Endpoint::kChatCompletions) {
    require(body.messages.is_array() && !body.messages.empty(), "there are no messages");
    for (const Json& message : body.messages) {
      require(message.is_object() && message.contains("role"), "a message is none");
    }
  } else {
    require(!body.prompts.empty(), "there are no prompts");
    require(body.prompts.size() <= 2048, "there are too many prompts");
  }
}

}  // namespace

void check_parsed_line(std::string_view bytes, const ParsedLine& parsed) {
  const std::string_view url = url_of_line(bytes);
  require(url.empty() || url.starts_with("/v1/"), "a url that no line can have");
  require(parsed.line.has_value() != parsed.error.has_value(), "not one of line and error");
  if (parsed.error) {
    require(!parsed.error->code.empty() && !parsed.error->message.empty(), "an error says nothing");
    require(is_utf8(parsed.error->message), "an error's message is not UTF-8");
    require(parsed.error->message.size() < 4096, "an error's message is long");
    return;
  }
  require(parsed.custom_id == parsed.line->custom_id, "a line has two ids");
  require(bytes.find('{') != bytes.npos, "a blank line is a request");
  require(parsed.line->ignored_fields.size() <= kMaxIgnoredFields, "too many ignored fields");
  for (const std::string& field : parsed.line->ignored_fields) {
    require(is_utf8(field) && field.size() < 1024, "an ignored field's name is long or broken");
  }
  check_body(parsed.line->body, parsed.line->endpoint);
}

}  // namespace batchmill::fuzz
