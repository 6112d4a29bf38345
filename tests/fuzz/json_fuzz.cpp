// The JSON reader of everything that clients send, beside another parser.
#include <limits>

#include "queue/field_reader.h"
#include "queue/json_reader.h"
#include "tests/fuzz/fuzz_target.h"

namespace batchmill::fuzz {

void run(std::string_view input) {
  std::string why;
  const std::optional<Json> value = read_json(input, &why);
  const bool other_accepts = Json::accept(input.begin(), input.end());
  if (!value) {
    require(!why.empty(), "a refusal has no reason");
    // The other skips a mark at the beginning, ends at a zero byte and nests without bounds.
    const bool other_is_lax = input.starts_with("\xEF\xBB\xBF") || input.find('\0') != input.npos ||
                              why.find("nest") != why.npos;
    require(!other_accepts || other_is_lax, "JSON is refused that another parser takes");
    return;
  }
  const bool infinite = holds_infinity(*value);
  require(other_accepts || infinite, "JSON is taken that another parser refuses");
  if (infinite) return;
  const std::string text = value->dump();
  require(read_json(text, &why) == value, "a value does not survive writing and reading");
  require(text.size() < 64 || input.size() >= text.size() / 8, "a small text made a large value");
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{7}, input.size()}) {
    const std::string_view prefix = utf8_prefix(input, size);
    require(prefix.size() <= size && prefix.size() + 4 > std::min(size, input.size()),
            "a prefix has the wrong length");
  }
  describe_value(*value);
  as_integer(*value);
}

}  // namespace batchmill::fuzz
