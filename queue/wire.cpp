#include "queue/wire.h"

#include <fmt/core.h>

#include "queue/json_reader.h"

namespace batchmill {

std::string encode_header(const Json& header) {
  // Text in an error may quote a stranger's bytes, so invalid UTF-8 is replaced.
  return header.dump(-1, ' ', false, Json::error_handler_t::replace);
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
