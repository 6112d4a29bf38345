// Numbers and alignment for the two kinds of string formatting. Free functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/jinja_value.h"

namespace batchmill::jinja {

// [[fill]align][sign][#][0][width][grouping][.precision][type]
struct FormatSpec {
  Text fill = Text(" ");
  char align = 0;  // < > ^ = or 0: the type's own
  char sign = '-';
  bool alternate = false;
  char grouping = 0;  // , or _ or 0
  std::size_t width = 0;
  std::optional<std::size_t> precision;
  char type = 0;
};

// Throws ValueError if the spec cannot be read.
FormatSpec parse_format_spec(const Text& spec);

Text pad(const Text& text, const FormatSpec& spec, char default_align);
Text format_integer(const Value& value, const FormatSpec& spec);
Text format_float(double value, const FormatSpec& spec);

}  // namespace batchmill::jinja
