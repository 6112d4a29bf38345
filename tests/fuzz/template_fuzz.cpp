// A chat template and its variables: parts "template" and "variables" (JSON).
#include <algorithm>

#include "engine/chat_template.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/json_to_jinja.h"

namespace batchmill::fuzz {
namespace {

using Json = nlohmann::ordered_json;

constexpr TemplateLimits kLimits = {.max_steps = 20'000, .max_output_bytes = 1 << 16};

void check_marks(const MarkedText& text) {
  std::size_t end = 0;
  for (const ByteSpan& span : text.marked) {
    require(span.begin >= end && span.end > span.begin && span.end <= text.text.size(),
            "marks are not sorted, disjoint and inside the text");
    end = span.end;
  }
}

}  // namespace

void run(std::string_view input) {
  const auto parts = split_parts(input);
  std::string_view source = find_part(parts, "template");
  if (source.empty()) source = parts.front().second;
  const std::string_view text = find_part(parts, "variables");
  Json variables = Json::parse(text.begin(), text.end(), nullptr, false);
  if (!variables.is_object()) variables = Json::object();
  accepts<TemplateError>([&] {
    const ChatTemplate chat_template(std::string(source), "<s>", "</s>", kLimits);
    const jinja::Value values = testing::to_jinja(variables);
    const MarkedText first = chat_template.render(values, 1'700'000'000);
    check_marks(first);
    require(first.text.size() <= static_cast<std::size_t>(kLimits.max_output_bytes),
            "a render made more than it may");
    const MarkedText second = chat_template.render(values, 1'700'000'000);
    require(first.text == second.text && first.marked == second.marked, "two renders differ");
  });
}

}  // namespace batchmill::fuzz
