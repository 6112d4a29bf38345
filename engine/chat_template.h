// Renders conversations into prompts with a model's Jinja chat template. One per model, shared by
// all threads that prepare its lines.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "engine/jinja_value.h"
#include "engine/template_error.h"
#include "engine/tokenizer.h"

namespace batchmill {

class ChatTemplate {
 public:
  // Parses at once. Throws TemplateError of kind "syntax", or "limit" where the source nests too
  // deep.
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

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace batchmill
