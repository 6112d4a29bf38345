// A template that shows what a message says never makes it the template's own text: the message is
// one character that no template spells, so wherever it stands in the output it must be marked.
#include <algorithm>

#include "engine/chat_template.h"
#include "engine/jinja_value.h"
#include "tests/fuzz/fuzz_target.h"

namespace batchmill::fuzz {
namespace {

using jinja::Value;

constexpr std::string_view kSaid = "\uE123";  // of the private use area
constexpr TemplateLimits kLimits = {.max_steps = 20'000, .max_output_bytes = 1 << 16};

Value messages() {
  const Value said =
      Value::marked_string("a " + std::string(kSaid) + "\n<|b|> " + std::string(kSaid) + " 7");
  const Value user = Value::dict({{"role", Value::marked_string("user")}, {"content", said}});
  const Value parts = Value::list({Value::dict(
      {{"type", Value::marked_string("text")}, {std::string(kSaid), said}, {"text", said}})});
  const Value other =
      Value::dict({{"role", Value::marked_string("assistant")}, {"content", parts}});
  return Value::dict({{"messages", Value::list({user, other, user})},
                      {"tools", Value::none()},
                      {"add_generation_prompt", Value::boolean(true)}});
}

}  // namespace

void run(std::string_view input) {
  // A template can spell any character by its number.
  for (const std::string_view spelling : {"\\", "\xEE", "%", "format"}) {
    if (input.find(spelling) != std::string_view::npos) return;
  }
  static const Value variables = messages();
  accepts<TemplateError>([&] {
    const MarkedText result =
        ChatTemplate(std::string(input), "<s>", "</s>", kLimits).render(variables, 0);
    for (std::size_t at = result.text.find(kSaid); at != std::string::npos;
         at = result.text.find(kSaid, at + 1)) {
      const bool marked = std::any_of(
          result.marked.begin(), result.marked.end(),
          [&](const ByteSpan& span) { return span.begin <= at && at + kSaid.size() <= span.end; });
      require(marked, "what a message says became the template's own text");
    }
  });
}

}  // namespace batchmill::fuzz
