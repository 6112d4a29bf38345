// Messages between batchmill's programs: one JSON header frame and, for some, one payload frame.
// queue/README.md describes the protocol for people who write their own client.
#pragma once

#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "queue/caller.h"

namespace batchmill {

using Json = nlohmann::ordered_json;

inline constexpr int kProtocolVersion = 1;

// `header["op"]` says what it is; `header["id"]`, if present, is echoed in the answer.
struct WireMessage {
  Json header;
  std::string payload;
  bool has_payload = false;
  // Of a message that a JobServer has received, and no part of what travels: who sent it, whether
  // that peer has gone since, and a receipt. As long as a copy of that lives, the message counts as
  // being worked on.
  Caller caller = {};
  std::shared_ptr<const std::atomic<bool>> sender_gone = {};
  std::shared_ptr<const void> receipt = {};
};

// Frames as they travel. The header is at most kMaxHeaderBytes of UTF-8 JSON, an object.
inline constexpr std::size_t kMaxHeaderBytes = 1 << 20;

// The longest payload of an answer that clients take.
inline constexpr std::size_t kMaxAnswerBytes = 256 << 20;

std::string encode_header(const Json& header);
// The header of an answer as it travels. An answer that no client would take, because its header or
// payload is too long, becomes an error that says so (`answer_too_large`): `*message` too.
std::string encode_answer(WireMessage* message);
// Absent when the bytes are no such header; `why` then says what is wrong.
std::optional<Json> decode_header(std::string_view bytes, std::string* why);

// The header's field if it is a string, else "".
std::string text_of(const Json& header, const char* name);

// The answer that reports a failure: {"op":"error","id":…,"code":…,"message":…}.
Json error_header(const Json& request_header, std::string_view code, std::string_view message);

}  // namespace batchmill
