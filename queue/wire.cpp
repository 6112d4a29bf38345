#include "queue/wire.h"

#include <fmt/core.h>

#include <utility>

#include "queue/json_reader.h"

namespace batchmill {

std::string encode_header(const Json& header) {
  // Text in an error may quote a stranger's bytes, so invalid UTF-8 is replaced.
  return header.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string encode_answer(WireMessage* message) {
  std::string header = encode_header(message->header);
  const std::size_t payload_bytes = message->has_payload ? message->payload.size() : 0;
  if (header.size() <= kMaxHeaderBytes && payload_bytes <= kMaxAnswerBytes) return header;
  const std::string why =
      fmt::format("the answer is too long: its header has {} bytes, its payload {}", header.size(),
                  payload_bytes);
  Json error = error_header(message->header, "answer_too_large", why);
  header = encode_header(error);
  if (header.size() > kMaxHeaderBytes) {
    // What it echoes is what is too long.
    error = error_header({}, "answer_too_large", why);
    header = encode_header(error);
  }
  *message = {};
  message->header = std::move(error);
  return header;
}

std::optional<Json> decode_header(std::string_view bytes, std::string* why) {
  if (bytes.size() > kMaxHeaderBytes) {
    *why = fmt::format("header of {} bytes, at most {} are allowed", bytes.size(), kMaxHeaderBytes);
    return std::nullopt;
  }
  std::optional<Json> header = read_json(bytes, why);
  if (!header) {
    *why = "header is not JSON: " + *why;
    return std::nullopt;
  }
  if (!header->is_object()) {
    *why = "header is not a JSON object";
    return std::nullopt;
  }
  const auto op = header->find("op");
  if (op == header->end() || !op->is_string()) {
    *why = "header has no \"op\" that is a string";
    return std::nullopt;
  }
  return header;
}

std::string text_of(const Json& header, const char* name) {
  const auto field = header.find(name);
  return field != header.end() && field->is_string() ? field->get<std::string>() : "";
}

Json error_header(const Json& request_header, std::string_view code, std::string_view message) {
  Json header = {{"op", "error"}};
  for (const char* const name : {"id", "job"}) {
    const auto field = request_header.find(name);
    if (field != request_header.end()) header[name] = *field;
  }
  header["code"] = code;
  header["message"] = message;
  return header;
}

}  // namespace batchmill
