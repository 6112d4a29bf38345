// Renders the JSON lines that users read: one schema for success and failure, OpenAI's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/line_work.h"
#include "engine/engine.h"
#include "engine/tokenizer.h"
#include "storage/records.h"

namespace batchmill {

// Everything a success line says. `outputs` and `prompts`: one per prompt of the line.
struct Success {
  LineKey key;
  const LineWork* work = nullptr;
  const std::vector<std::vector<TokenId>>* prompts = nullptr;
  const std::vector<RequestOutput>* outputs = nullptr;
  const Tokenizer* tokenizer = nullptr;  // may be null
  std::string fingerprint;
  std::int64_t created_s = 0;
};

// One line of strict JSON in valid UTF-8, without its newline.
std::string success_output(const Success& success);

// `custom_id`: absent when the line could not be read that far.
std::string failure_output(const LineKey& key, const std::optional<std::string>& custom_id,
                           std::string_view code, std::string_view message);

// "batch_req_…": the same for a line however often it is run.
std::string batch_request_id(const LineKey& key);

}  // namespace batchmill
