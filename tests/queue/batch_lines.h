// Batch lines for tests, from the part that a test is about.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "queue/batch_line.h"

namespace batchmill {

inline ParsedLine parse(std::string_view bytes) {
  return parse_batch_line(bytes, BatchLineLimits{});
}

inline ParsedLine parse(const std::string& url, const std::string& body) {
  return parse(R"({"custom_id":"c","method":"POST","url":")" + url + R"(","body":)" + body + "}");
}

// A chat or completions body with more fields: `"n": 2`.
inline ParsedLine chat(const std::string& fields) {
  return parse("/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}])" +
                                           (fields.empty() ? "" : "," + fields) + "}");
}
inline ParsedLine completion(const std::string& fields) {
  return parse("/v1/completions", R"({"prompt":"hi")" + (fields.empty() ? "" : "," + fields) + "}");
}
inline ParsedLine messages(const std::string& json) {
  return parse("/v1/chat/completions", R"({"messages":)" + json + "}");
}
inline ParsedLine prompt(const std::string& json) {
  return parse("/v1/completions", R"({"prompt":)" + json + "}");
}

inline std::string code(const ParsedLine& parsed) {
  EXPECT_NE(parsed.line.has_value(), parsed.error.has_value());
  return parsed.error ? parsed.error->code : "ok";
}
inline std::string message(const ParsedLine& parsed) {
  return parsed.error ? parsed.error->message : "";
}

}  // namespace batchmill
