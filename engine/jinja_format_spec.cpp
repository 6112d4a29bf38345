#include "engine/jinja_format_spec.h"

#include <charconv>
#include <cmath>

#include "engine/jinja_operators.h"
#include "engine/jinja_print.h"
#include "engine/jinja_runtime.h"

namespace batchmill::jinja {
namespace {

constexpr std::size_t kMaxWidth = 1 << 30;  // charged as text long before

bool is_align(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

std::size_t read_number(const std::string& text, std::size_t& i) {
  std::size_t number = 0;
  for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
    number = std::min(kMaxWidth, number * 10 + static_cast<std::size_t>(text[i] - '0'));
  }
  return number;
}

std::string with_grouping(const std::string& digits, char separator, std::size_t group) {
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i != 0 && (digits.size() - i) % group == 0) out.push_back(separator);
    out.push_back(digits[i]);
  }
  return out;
}

// Sign, prefix and padding around the digits of a number.
Text finish_number(bool is_negative, const std::string& prefix, const std::string& digits,
                   const FormatSpec& spec) {
  std::string sign = is_negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  if (spec.align == '=') {
    Text out(sign + prefix);
    const std::size_t used = out.size() + digits.size();
    charge_bytes(spec.width);
    for (std::size_t i = used; i < spec.width; ++i) out.append(spec.fill);
    out.append(digits);
    return out;
  }
  return pad(Text(sign + prefix + digits), spec, '>');
}

std::string float_digits(double value, char type, std::optional<std::size_t> precision) {
  if (std::isinf(value)) return type >= 'A' && type <= 'Z' ? "INF" : "inf";
  if (std::isnan(value)) return type >= 'A' && type <= 'Z' ? "NAN" : "nan";
  if (type == 0 && !precision) return float_repr(value);
  const char lower = static_cast<char>(type | 32);
  const auto style = lower == 'e'                  ? std::chars_format::scientific
                     : lower == 'f' || type == '%' ? std::chars_format::fixed
                                                   : std::chars_format::general;
  const std::size_t digits = precision.value_or(6);
  charge_bytes(digits);
  std::string out(digits + 400, '\0');
  const auto result =
      std::to_chars(out.data(), out.data() + out.size(), value, style, static_cast<int>(digits));
  out.resize(static_cast<std::size_t>(result.ptr - out.data()));
  if (type == 0 && out.find_first_of(".e") == std::string::npos) out += ".0";
  if (type >= 'A' && type <= 'Z') {
    for (char& c : out) c = c == 'e' ? 'E' : c;
  }
  return out;
}

}  // namespace

FormatSpec parse_format_spec(const Text& text) {
  FormatSpec spec;
  const std::string& s = text.text;
  std::size_t i = 0;
  std::size_t after_first = 0;
  if (!s.empty()) read_utf8(s, after_first);
  if (after_first < s.size() && after_first > 0 && is_align(s[after_first])) {
    spec.fill = text.slice(0, after_first);
    spec.align = s[after_first];
    i = after_first + 1;
  } else if (!s.empty() && is_align(s[0])) {
    spec.align = s[i++];
  }
  if (i < s.size() && (s[i] == '+' || s[i] == '-' || s[i] == ' ')) spec.sign = s[i++];
  if (i < s.size() && s[i] == '#') {
    spec.alternate = true;
    ++i;
  }
  if (i < s.size() && s[i] == '0') {
    if (spec.align == 0) {
      spec.align = '=';
      spec.fill = Text("0");
    }
    ++i;
  }
  spec.width = read_number(s, i);
  if (i < s.size() && (s[i] == ',' || s[i] == '_')) spec.grouping = s[i++];
  if (i < s.size() && s[i] == '.') {
    const std::size_t begin = ++i;
    spec.precision = read_number(s, i);
    if (i == begin) value_error("Format specifier missing precision");
  }
  if (i < s.size()) spec.type = s[i++];
  if (i < s.size()) value_error("Invalid format specifier");
  return spec;
}

Text pad(const Text& text, const FormatSpec& spec, char default_align) {
  const std::size_t length = count_characters(text.text);
  if (spec.width <= length) return text;
  const std::size_t missing = spec.width - length;
  charge_bytes(spec.width + text.size());
  charge(missing * spec.fill.marked.size());
  const char align = spec.align == 0 ? default_align : spec.align;
  const std::size_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  Text out;
  for (std::size_t i = 0; i < left; ++i) out.append(spec.fill);
  out.append(text);
  for (std::size_t i = left; i < missing; ++i) out.append(spec.fill);
  return out;
}

Text format_integer(const Value& value, const FormatSpec& spec) {
  const char type = spec.type == 0 ? 'd' : spec.type;
  if (std::string_view("eEfFgG%").find(type) != std::string_view::npos) {
    return format_float(double_value(value), spec);
  }
  if (spec.precision) value_error("Precision not allowed in integer format specifier");
  if (type == 'c') {
    const std::int64_t code = index_value(value);
    if (code < 0 || code > 0x10FFFF) fail("OverflowError", "%c arg not in range(0x110000)");
    Text out;
    append_utf8(out.text, static_cast<char32_t>(code));
    return pad(out, spec, '<');
  }
  const unsigned base = type == 'b' ? 2 : type == 'o' ? 8 : type == 'x' || type == 'X' ? 16 : 10;
  if (base == 10 && type != 'd' && type != 'n') {
    value_error(std::string("Unknown format code '") + type + "' for object of type 'int'");
  }
  const BigInt big = big_value(value);
  charge(big.bits() * big.bits() / 2048);
  std::string digits = (big.negative() ? big.negated() : big).to_string(base);
  if (type == 'X') {
    for (char& c : digits) c = c >= 'a' ? static_cast<char>(c - 32) : c;
  }
  if (spec.grouping != 0) digits = with_grouping(digits, spec.grouping, base == 10 ? 3 : 4);
  const std::string prefix = spec.alternate && base != 10 ? std::string("0") + type : "";
  return finish_number(big.negative(), prefix, digits, spec);
}

Text format_float(double value, const FormatSpec& spec) {
  if (spec.type != 0 && std::string_view("eEfFgGn%").find(spec.type) == std::string_view::npos) {
    value_error(std::string("Unknown format code '") + spec.type + "' for object of type 'float'");
  }
  const bool is_negative = std::signbit(value) && !std::isnan(value);
  double magnitude = std::fabs(value);
  if (spec.type == '%') magnitude *= 100.0;
  std::string digits = float_digits(magnitude, spec.type, spec.precision);
  if (spec.grouping != 0) {
    const std::size_t end = std::min(digits.find_first_of(".eE"), digits.size());
    digits = with_grouping(digits.substr(0, end), spec.grouping, 3) + digits.substr(end);
  }
  if (spec.type == '%') digits += "%";
  return finish_number(is_negative, "", digits, spec);
}

}  // namespace batchmill::jinja
