// The fields of an "open" message: what a user asks for when making a job. Plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "queue/wire.h"

namespace batchmill {

struct OpenRequest {
  std::string key;  // idempotency key, never empty
  std::string name;
  std::int32_t priority = 0;  // −10 … 10
  bool strict = false;
  std::int64_t deadline_s = 0;  // 0: none
  std::map<std::string, std::string> metadata;  // OpenAI's limits: 16 pairs, 64 and 512 characters
  std::string content_hash;  // empty: not known yet
  std::string model_fingerprint;
};

// Absent when a field is missing or wrong; `why` then names it.
std::optional<OpenRequest> read_open_request(const Json& header, std::string* why);

}  // namespace batchmill
