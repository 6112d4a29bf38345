#include "queue/open_request.h"

#include <fmt/core.h>

#include <algorithm>

#include "queue/field_reader.h"

namespace batchmill {
namespace {

constexpr std::size_t kMaxPairs = 16;
constexpr std::size_t kMaxKeyCharacters = 64;
constexpr std::size_t kMaxValueCharacters = 512;
constexpr std::int64_t kMaxDeadlineS = 10LL * 365 * 86'400;

constexpr std::size_t kMaxTextBytes = 4096;

std::size_t characters(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string text(FieldReader* fields, std::string_view name) {
  std::string value = fields->string(name).value_or("");
  if (value.size() > kMaxTextBytes) {
    fields->fail_value(name, fmt::format("a string of at most {} bytes", kMaxTextBytes), value);
  }
  return value;
}

void read_metadata(FieldReader* fields, OpenRequest* request) {
  const Json* const metadata = fields->find("metadata");
  if (metadata == nullptr) return;
  constexpr std::string_view kWanted =
      "an object of at most 16 strings of up to 512 characters, with keys of up to 64";
  bool good = metadata->is_object() && metadata->size() <= kMaxPairs;
  if (good) {
    for (const auto& [key, value] : metadata->items()) {
      good = good && value.is_string() && characters(key) <= kMaxKeyCharacters &&
             characters(value.get_ref<const std::string&>()) <= kMaxValueCharacters;
      if (good) request->metadata[key] = value.get<std::string>();
    }
  }
  if (!good) fields->fail_value("metadata", kWanted, *metadata);
}

}  // namespace

std::optional<OpenRequest> read_open_request(const Json& header, std::string* why) {
  OpenRequest request;
  std::optional<LineError> error;
  FieldReader fields(header, "", &error);
  if (const Json* const key = fields.require("key")) {
    request.key = text(&fields, "key");
    if (request.key.empty()) fields.fail_value("key", "a string that is not empty", *key);
  }
  request.name = text(&fields, "name");
  request.priority = static_cast<std::int32_t>(fields.integer("priority", -10, 10).value_or(0));
  request.strict = fields.boolean("strict", false);
  request.deadline_s = fields.integer("deadline_s", 0, kMaxDeadlineS).value_or(0);
  read_metadata(&fields, &request);
  request.content_hash = text(&fields, "content_hash");
  request.model_fingerprint = text(&fields, "model_fingerprint");
  if (!error) return request;
  *why = error->message;
  return std::nullopt;
}

}  // namespace batchmill
