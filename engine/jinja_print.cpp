#include "engine/jinja_print.h"

#include <charconv>
#include <cmath>

#include "engine/jinja_objects.h"
#include "engine/jinja_operators.h"
#include "engine/jinja_runtime.h"
#include "engine/jinja_unicode.h"

namespace batchmill::jinja {
namespace {

constexpr std::size_t kMaxIntegerDigits = 4300;  // Python converts no longer ones

std::string integer_repr(const Value& value) {
  if (value.is(Kind::kInteger)) return std::to_string(value.integer_value());
  const BigInt big = big_value(value);
  charge(big.bits() * big.bits() / 2048);
  std::string out = big.to_string();
  if (out.size() > kMaxIntegerDigits + (big.negative() ? 1 : 0)) {
    value_error("Exceeds the limit (4300 digits) for integer string conversion");
  }
  return out;
}

void append_hex_escape(std::string& out, char32_t c) {
  const int digits = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
  out += c < 0x100 ? "\\x" : c < 0x10000 ? "\\u" : "\\U";
  for (int i = digits - 1; i >= 0; --i) out.push_back("0123456789abcdef"[(c >> (4 * i)) & 15U]);
}

void append_string_repr(Text& out, const Text& text) {
  check_size(out.size() + text.size());
  charge_bytes(text.size());
  const bool has_single = text.text.find('\'') != std::string::npos;
  const char quote = has_single && text.text.find('"') == std::string::npos ? '"' : '\'';
  out.append(std::string_view(&quote, 1));
  MarkReader marks(text);
  for (std::size_t i = 0; i < text.size();) {
    const bool marked = marks.at(i);
    const std::size_t begin = i;
    const char32_t c = read_utf8(text.text, i);
    std::string escaped;
    if (c == '\\' || c == static_cast<char32_t>(quote)) {
      escaped = {'\\', static_cast<char>(c)};
    } else if (c == '\n') {
      escaped = "\\n";
    } else if (c == '\r') {
      escaped = "\\r";
    } else if (c == '\t') {
      escaped = "\\t";
    } else if (!is_printable(c)) {
      append_hex_escape(escaped, c);
    } else {
      escaped.assign(text.text, begin, i - begin);
    }
    out.append(escaped, marked);
  }
  out.append(std::string_view(&quote, 1));
}

void append_items(Text& out, const std::vector<Value>& items) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i != 0) out.append(", ");
    append_repr(out, items[i]);
  }
}

void append_dict(Text& out, const std::vector<std::pair<Value, Value>>& items) {
  out.append("{");
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i != 0) out.append(", ");
    append_repr(out, items[i].first);
    out.append(": ");
    append_repr(out, items[i].second);
  }
  out.append("}");
}

void append_range(Text& out, const RangeObject& range) {
  out.append("range(" + std::to_string(range.start) + ", " + std::to_string(range.stop));
  if (range.step != 1) out.append(", " + std::to_string(range.step));
  out.append(")");
}

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto result =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  std::string_view shortest(buffer, static_cast<std::size_t>(result.ptr - buffer));
  std::string out;
  if (shortest.front() == '-') {
    out = "-";
    shortest.remove_prefix(1);
  }
  const std::size_t e = shortest.find('e');
  const int exponent = std::atoi(std::string(shortest.substr(e + 1)).c_str());
  std::string digits(1, shortest[0]);
  if (e > 2) digits += shortest.substr(2, e - 2);
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (count > 1) out += "." + digits.substr(1);
    const int magnitude = std::abs(exponent);
    return out + (exponent < 0 ? "e-" : "e+") + (magnitude < 10 ? "0" : "") +
           std::to_string(magnitude);
  }
  if (exponent < 0) {
    return out + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  }
  if (exponent + 1 >= count) {
    return out + digits + std::string(static_cast<std::size_t>(exponent + 1 - count), '0') + ".0";
  }
  const auto whole = static_cast<std::size_t>(exponent + 1);
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

Text to_text(const Value& value) {
  if (value.is(Kind::kString)) return value.text_value();
  Text out;
  append_text(out, value);
  return out;
}

Text repr(const Value& value) {
  Text out;
  append_repr(out, value);
  return out;
}

void append_text(Text& out, const Value& value) {
  if (value.is(Kind::kString)) {
    check_size(out.size() + value.string_value().size());
    charge_bytes(value.string_value().size());
    out.append(value.text_value());
  } else if (!value.is_undefined()) {
    append_repr(out, value);
  }
}

void append_repr(Text& out, const Value& value) {
  charge();
  check_size(out.size());
  const Nested nested;
  switch (value.kind()) {
    case Kind::kUndefined:
      out.append("Undefined");
      break;
    case Kind::kNone:
      out.append("None");
      break;
    case Kind::kBoolean:
      out.append(value.integer_value() != 0 ? "True" : "False");
      break;
    case Kind::kInteger:
    case Kind::kBigInteger:
      out.append(integer_repr(value));
      break;
    case Kind::kFloating:
      out.append(float_repr(value.floating_value()));
      break;
    case Kind::kString: {
      const bool is_markup = value.as<StringObject>().is_markup;
      if (is_markup) out.append("Markup(");
      append_string_repr(out, value.text_value());
      if (is_markup) out.append(")");
      break;
    }
    case Kind::kList:
      out.append("[");
      append_items(out, value.items());
      out.append("]");
      break;
    case Kind::kTuple:
      out.append("(");
      append_items(out, value.items());
      out.append(value.items().size() == 1 ? ",)" : ")");
      break;
    case Kind::kDict:
      append_dict(out, value.as<DictObject>().items);
      break;
    case Kind::kDictView:
      out.append(type_name(value) + "([");
      append_items(out, iterate(value));
      out.append("])");
      break;
    case Kind::kRange:
      append_range(out, value.as<RangeObject>());
      break;
    case Kind::kNamespace: {
      out.append("<Namespace ");
      std::vector<std::pair<Value, Value>> items;
      for (const auto& [name, item] : value.as<NamespaceObject>().attributes) {
        items.emplace_back(Value::string(name), item);
      }
      append_dict(out, items);
      out.append(">");
      break;
    }
    case Kind::kMacro: {
      Text name;
      append_string_repr(name, Text(value.as<MacroObject>().node->name));
      out.append("<Macro ");
      out.append(name);
      out.append(">");
      break;
    }
    case Kind::kLoop: {
      const auto& loop = value.as<LoopObject>();
      out.append("<LoopContext " + std::to_string(loop.index + 1) + "/" +
                 std::to_string(loop.items.size()) + ">");
      break;
    }
    default:
      out.append("<" + type_name(value) + " object>");
      break;
  }
}

Text escape_html(const Text& text) {
  charge_bytes(text.size() * 2);
  Text out;
  MarkReader marks(text);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool marked = marks.at(i);
    switch (text.text[i]) {
      case '&':
        out.append("&amp;", marked);
        break;
      case '<':
        out.append("&lt;", marked);
        break;
      case '>':
        out.append("&gt;", marked);
        break;
      case '\'':
        out.append("&#39;", marked);
        break;
      case '"':
        out.append("&#34;", marked);
        break;
      default:
        out.append(std::string_view(&text.text[i], 1), marked);
    }
  }
  return out;
}

}  // namespace batchmill::jinja
