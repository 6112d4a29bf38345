// What rendering a chat template can fail with, and the bounds of one render.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace batchmill {

// Why a template failed. `kind` is one of "raise_exception", "undefined", "security", "syntax",
// "runtime", "limit", or a Python exception's name such as "TypeError"; what() is the message.
class TemplateError : public std::runtime_error {
 public:
  TemplateError(std::string kind, const std::string& message, int line = 0)
      : std::runtime_error(message), kind_(std::move(kind)), line_(line) {}
  const std::string& kind() const { return kind_; }
  int line() const { return line_; }  // 1-based line of the template, 0 if unknown

 private:
  std::string kind_;
  int line_;
};

// Bounds of one render; past any of them it fails with kind "limit".
struct TemplateLimits {
  std::int64_t max_steps = 10'000'000;  // evaluated nodes, list items, and 32 bytes of text each
  std::int64_t max_output_bytes = 64 << 20;  // also of any one string
  std::int32_t max_depth = 200;  // nested calls and expressions, also while parsing
};

}  // namespace batchmill
