#include "queue/batch_line.h"

#include <algorithm>
#include <utility>

#include "queue/body_fields.h"
#include "queue/field_reader.h"
#include "queue/json_reader.h"

namespace batchmill {
namespace {

struct EndpointUrl {
  std::string_view url;
  Endpoint endpoint;
};
constexpr EndpointUrl kEndpointUrls[] = {{"/v1/chat/completions", Endpoint::kChatCompletions},
                                         {"/v1/completions", Endpoint::kCompletions},
                                         {"/v1/embeddings", Endpoint::kEmbeddings}};

void read_method(FieldReader* envelope) {
  const Json* const method = envelope->require("method");
  if (method != nullptr && *method != "POST") envelope->fail_value("method", "\"POST\"", *method);
}

void read_url(FieldReader* envelope, BatchLine* line) {
  const Json* const url = envelope->require("url");
  if (url == nullptr) return;
  if (!url->is_string()) return envelope->fail_value("url", "a string", *url);
  for (const EndpointUrl& known : kEndpointUrls) {
    if (url->get_ref<const std::string&>() == known.url) {
      line->endpoint = known.endpoint;
      return;
    }
  }
  envelope->fail("unsupported_url",
                 "url must be \"/v1/chat/completions\", \"/v1/completions\" or "
                 "\"/v1/embeddings\", is " +
                     describe_value(*url));
}

void read_body(const Json& object, const BatchLineLimits& limits, BatchLine* line,
               std::optional<LineError>* error) {
  FieldReader body(object, "body.", error);
  line->body.model = body.string("model").value_or("default");
  check_field_names(line->endpoint, &body, &line->ignored_fields);
  switch (line->endpoint) {
    case Endpoint::kChatCompletions:
      read_messages(&body, &line->body);
      read_template_fields(&body, &line->body);
      read_sampling(line->endpoint, limits, &body, &line->body);
      break;
    case Endpoint::kCompletions:
      read_prompts("prompt", &body, &line->body);
      read_sampling(line->endpoint, limits, &body, &line->body);
      break;
    case Endpoint::kEmbeddings:
      read_prompts("input", &body, &line->body);
      read_embedding_fields(limits, &body, &line->body);
      break;
  }
}

void read_envelope(const Json& object, const BatchLineLimits& limits, ParsedLine* parsed) {
  FieldReader envelope(object, "", &parsed->error);
  BatchLine line;
  // The id first: it is echoed whatever else is wrong.
  if (envelope.require("custom_id") != nullptr) parsed->custom_id = envelope.string("custom_id");
  read_method(&envelope);
  read_url(&envelope, &line);
  if (const Json* const body = envelope.require("body")) {
    if (!body->is_object()) {
      envelope.fail_value("body", "an object", *body);
    } else {
      for (const auto& [name, value] : object.get_ref<const Json::object_t&>()) {
        if (name != "custom_id" && name != "method" && name != "url" && name != "body") {
          add_ignored_field(name, &line.ignored_fields);
        }
      }
      read_body(*body, limits, &line, &parsed->error);
    }
  }
  if (parsed->error) return;
  line.custom_id = *parsed->custom_id;
  parsed->line = std::move(line);
}

}  // namespace

ParsedLine parse_batch_line(std::string_view bytes, const BatchLineLimits& limits) {
  ParsedLine parsed;
  std::string why;
  const std::optional<Json> value = read_json(bytes, &why);
  if (!value) {
    parsed.error = LineError{"invalid_json_line", "the line is not valid JSON: " + why};
  } else if (!value->is_object()) {
    parsed.error = LineError{"invalid_json_line",
                             "the line must be a JSON object, is " + describe_value(*value)};
  } else {
    read_envelope(*value, limits, &parsed);
  }
  return parsed;
}

std::string_view url_of_line(std::string_view bytes) {
  constexpr std::size_t kSeenBytes = 64 << 10;
  bytes = bytes.substr(0, kSeenBytes);
  std::size_t at = 0;
  const auto skip_space = [&] {
    at = std::min(bytes.find_first_not_of(" \t\r", at), bytes.size());
  };
  // The text between the quotes that begin at `at`, as it is written.
  const auto read_string = [&] {
    const std::size_t begin = ++at;
    while (at < bytes.size() && bytes[at] != '"') at += bytes[at] == '\\' ? 2 : 1;
    at = std::min(at, bytes.size());
    return bytes.substr(begin, at++ - begin);
  };
  int depth = 0;
  while (at < bytes.size()) {
    const char c = bytes[at];
    if (c != '"') {
      if (c == '{' || c == '[') ++depth;
      if (c == '}' || c == ']') --depth;
      ++at;
      continue;
    }
    const std::string_view key = read_string();
    skip_space();
    if (depth != 1 || key != "url" || at >= bytes.size() || bytes[at] != ':') continue;
    ++at;
    skip_space();
    if (at >= bytes.size() || bytes[at] != '"') return "";
    const std::string_view url = read_string();
    for (const EndpointUrl& known : kEndpointUrls) {
      if (url == known.url) return known.url;
    }
    return "";
  }
  return "";
}

}  // namespace batchmill
