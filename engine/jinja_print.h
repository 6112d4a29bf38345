// How values look as text: Python's str and repr, and JSON as json.dumps writes it. Free functions;
// marks of the strings inside are kept.
#pragma once

#include <optional>
#include <string>

#include "engine/jinja_value.h"

namespace batchmill::jinja {

std::string float_repr(double value);
Text to_text(const Value& value);  // str(value)
Text repr(const Value& value);
void append_text(Text& out, const Value& value);
void append_repr(Text& out, const Value& value);

Text escape_html(const Text& text);  // & < > ' "

struct JsonStyle {
  std::optional<Text> indent;  // nothing: one line
  Text item_separator;
  Text key_separator;
  bool sort_keys = false;
  bool ensure_ascii = false;
};
Text to_json(const Value& value, const JsonStyle& style);

}  // namespace batchmill::jinja
