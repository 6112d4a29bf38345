// Renders conversations into prompts with a model's Jinja chat template.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include "engine/jinja_value.h"
#include "engine/tokenizer.h"

namespace batchmill {

// Why a template failed. `kind` is one of "raise_exception", "undefined", "security", "syntax",
// "runtime", "limit", or a Python exception's name such as "TypeError"; what() is the message.
class TemplateError : public std::runtime_error {
 public:
  TemplateError(std::string kind, const std::string& message, int line = 0);
  const std::string& kind() const { return kind_; }
  int line() const { return line_; }  // 1-based line of the template, 0 if unknown

 private:
  std::string kind_;
  int line_;
};

// Bounds of one render; past any of them it fails with kind "limit".
struct TemplateLimits {
  std::int64_t max_steps = 10'000'000;
  std::int64_t max_output_bytes = 64 << 20;
  std::int32_t max_depth = 200;  // nested calls and expressions, also while parsing
};

class ChatTemplate {
 public:
  // Parses at once. Throws TemplateError of kind "syntax".
  ChatTemplate(std::string source, std::string bos_token, std::string eos_token,
               TemplateLimits limits = {});
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  // `variables`: a dict with messages, tools, add_generation_prompt and whatever else the template
  // may read; bos_token, eos_token are added unless given. Every string in it that is marked
  // (jinja::Value::marked_string) stays marked through all operations. `now_s`: unix seconds that
  // strftime_now shows (UTC). Thread-safe. Throws TemplateError.
  MarkedText render(const jinja::Value& variables, std::int64_t now_s) const;

  const std::string& source() const;

  // The template's text mentions this variable (e.g. "tools").
  bool mentions(std::string_view variable) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace batchmill
