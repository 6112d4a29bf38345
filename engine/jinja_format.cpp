#include "engine/jinja_format.h"

#include <cmath>

#include "engine/jinja_format_spec.h"
#include "engine/jinja_objects.h"
#include "engine/jinja_operators.h"
#include "engine/jinja_print.h"
#include "engine/jinja_runtime.h"

namespace batchmill::jinja {
namespace {

// Formats one text with % conversions.
class PercentFormatter {
 public:
  PercentFormatter(const Text& format, const Value& arguments)
      : format_(format), s_(format.text), arguments_(arguments) {}

  Text run() {
    Text out;
    std::size_t plain = 0;
    while (i_ < s_.size()) {
      if (s_[i_] != '%') {
        ++i_;
        continue;
      }
      out.append(format_, plain, i_);
      out.append(conversion());
      check_size(out.size());
      plain = i_;
    }
    out.append(format_, plain, s_.size());
    const bool takes_rest = arguments_.is(Kind::kDict) || used_mapping_;
    if (!takes_rest &&
        (arguments_.is(Kind::kTuple) ? next_ < arguments_.items().size() : next_ == 0)) {
      type_error("not all arguments converted during string formatting");
    }
    return out;
  }

 private:
  Value next_argument() {
    if (arguments_.is(Kind::kTuple)) {
      if (next_ >= arguments_.items().size()) {
        type_error("not enough arguments for format string");
      }
      return arguments_.items()[next_++];
    }
    if (next_++ > 0) type_error("not enough arguments for format string");
    return arguments_;
  }

  std::size_t number() {
    if (i_ < s_.size() && s_[i_] == '*') {
      ++i_;
      const std::int64_t value = index_value(next_argument());
      if (value < 0) spec_.align = '<';
      return static_cast<std::size_t>(std::min<std::int64_t>(std::abs(value), 1 << 30));
    }
    std::size_t value = 0;
    for (; i_ < s_.size() && s_[i_] >= '0' && s_[i_] <= '9'; ++i_) {
      value = std::min<std::size_t>(value * 10 + static_cast<std::size_t>(s_[i_] - '0'), 1 << 30);
    }
    return value;
  }

  Value mapped_argument() {
    if (!arguments_.is(Kind::kDict)) type_error("format requires a mapping");
    used_mapping_ = true;
    const std::size_t begin = ++i_;
    for (int depth = 1; i_ < s_.size(); ++i_) {
      if (s_[i_] == '(') ++depth;
      if (s_[i_] == ')' && --depth == 0) break;
    }
    if (i_ == s_.size()) value_error("incomplete format key");
    const std::string key = s_.substr(begin, i_++ - begin);
    const Value* value = arguments_.as<DictObject>().find(key);
    if (value == nullptr) fail("KeyError", "'" + key + "'");
    return *value;
  }

  Text conversion() {
    const std::size_t begin = i_++;
    spec_ = FormatSpec();
    std::optional<Value> value;
    if (i_ < s_.size() && s_[i_] == '(') value = mapped_argument();
    bool zero = false;
    for (; i_ < s_.size(); ++i_) {
      if (s_[i_] == '-') {
        spec_.align = '<';
      } else if (s_[i_] == '+') {
        spec_.sign = '+';
      } else if (s_[i_] == ' ') {
        if (spec_.sign == '-') spec_.sign = ' ';
      } else if (s_[i_] == '#') {
        spec_.alternate = true;
      } else if (s_[i_] == '0') {
        zero = true;
      } else {
        break;
      }
    }
    spec_.width = number();
    if (i_ < s_.size() && s_[i_] == '.') {
      ++i_;
      spec_.precision = number();
    }
    while (i_ < s_.size() && (s_[i_] == 'h' || s_[i_] == 'l' || s_[i_] == 'L')) ++i_;
    if (i_ == s_.size()) value_error("incomplete format");
    const char type = s_[i_++];
    if (type == '%') return format_.slice(begin, begin + 1);
    if (!value) value = next_argument();
    return convert(*value, type, zero);
  }

  Text convert(const Value& value, char type, bool zero) {
    switch (type) {
      case 's':
      case 'r':
      case 'a': {
        Text text = type == 's' ? to_text(value) : repr(value);
        if (spec_.precision) {
          const auto offsets = character_offsets(text.text);
          if (*spec_.precision + 1 < offsets.size()) {
            text = text.slice(0, offsets[*spec_.precision]);
          }
        }
        return pad(text, spec_, '>');
      }
      case 'c':
        if (value.is(Kind::kString)) return pad(value.text_value(), spec_, '>');
        break;
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X':
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        break;
      default:
        value_error(std::string("unsupported format character '") + type + "'");
    }
    if (!value.is_number()) {
      if (value.is_undefined() && type != 'd' && type != 'i' && type != 'u') undefined_error(value);
      type_error(std::string("%") + type + " format: a real number is required, not " +
                 type_name(value));
    }
    if (zero && spec_.align == 0) {
      spec_.align = '=';
      spec_.fill = Text("0");
    }
    spec_.type = type == 'i' || type == 'u' ? 'd' : type;
    if (std::string_view("eEfFgG").find(type) != std::string_view::npos) {
      return format_float(double_value(value), spec_);
    }
    const std::optional<std::size_t> min_digits = spec_.precision;
    spec_.precision.reset();
    Value whole = value;
    if (value.is(Kind::kFloating)) {
      if (spec_.type != 'd' || !std::isfinite(value.floating_value())) {
        type_error(std::string("%") + type + " format: an integer is required, not float");
      }
      whole = normalized(BigInt::from_double(value.floating_value()));
    }
    if (min_digits) {
      FormatSpec digits = spec_;
      digits.fill = Text("0");
      digits.align = '=';
      digits.width = *min_digits + (big_value(whole).negative() || spec_.sign != '-' ? 1 : 0);
      return pad(format_integer(whole, digits), spec_, '>');
    }
    return format_integer(whole, spec_);
  }

  const Text& format_;
  const std::string& s_;
  const Value& arguments_;
  std::size_t i_ = 0;
  std::size_t next_ = 0;
  bool used_mapping_ = false;
  FormatSpec spec_;
};

// Formats one text with {} fields.
class BraceFormatter {
 public:
  explicit BraceFormatter(const Arguments& arguments) : arguments_(arguments) {}

  Text run(const Text& format, int depth) {
    if (depth > 3) value_error("Max string recursion exceeded");
    const std::string& s = format.text;
    Text out;
    for (std::size_t i = 0; i < s.size();) {
      const std::size_t brace = std::min(s.find_first_of("{}", i), s.size());
      out.append(format, i, brace);
      check_size(out.size());
      if (brace == s.size()) break;
      if (brace + 1 < s.size() && s[brace + 1] == s[brace]) {
        out.append(format, brace, brace + 1);
        i = brace + 2;
      } else if (s[brace] == '}') {
        value_error("Single '}' encountered in format string");
      } else {
        const std::size_t end = field_end(s, brace + 1);
        out.append(field(format.slice(brace + 1, end), depth));
        i = end + 1;
      }
    }
    return out;
  }

 private:
  static std::size_t field_end(const std::string& s, std::size_t i) {
    for (int open = 1; i < s.size(); ++i) {
      if (s[i] == '{') ++open;
      if (s[i] == '}' && --open == 0) return i;
    }
    value_error(i == s.size() && s.back() == '{' ? "Single '{' encountered in format string"
                                                 : "expected '}' before end of string");
  }

  Text field(const Text& text, int depth) {
    const std::string& s = text.text;
    std::size_t end = 0;
    for (bool in_index = false; end < s.size(); ++end) {
      if (s[end] == '[') in_index = true;
      if (s[end] == ']') in_index = false;
      if (!in_index && (s[end] == '!' || s[end] == ':')) break;
    }
    Value value = lookup(s.substr(0, end));
    if (end < s.size() && s[end] == '!') {
      const char conversion = end + 1 < s.size() ? s[end + 1] : 0;
      if (conversion != 's' && conversion != 'r' && conversion != 'a') {
        value_error("Unknown conversion specifier");
      }
      value = Value::text(conversion == 's' ? to_text(value) : repr(value));
      end += 2;
      if (end < s.size() && s[end] != ':') value_error("expected ':' after conversion specifier");
    }
    const Text spec = end < s.size() ? text.slice(end + 1, s.size()) : Text();
    return format_value(value, run(spec, depth + 1));
  }

  Value lookup(const std::string& path) {
    std::size_t i = std::min(path.find_first_of(".["), path.size());
    Value value = argument(path.substr(0, i));
    while (i < path.size()) {
      if (path[i] == '.') {
        const std::size_t end = std::min(path.find_first_of(".[", i + 1), path.size());
        value = get_attribute(value, path.substr(i + 1, end - i - 1));
        i = end;
      } else {
        const std::size_t end = path.find(']', i);
        if (path[i] != '[' || end == std::string::npos) value_error("Missing ']' in format string");
        const std::string key = path.substr(i + 1, end - i - 1);
        const bool is_index =
            !key.empty() && key.find_first_not_of("0123456789") == std::string::npos;
        value = get_item(value, is_index ? Value::integer(key) : Value::string(key));
        i = end + 1;
      }
    }
    return value;
  }

  Value argument(const std::string& name) {
    const bool is_index = name.find_first_not_of("0123456789") == std::string::npos;
    if (!is_index) {
      const Value* value = arguments_.find(name);
      if (value == nullptr) fail("KeyError", "'" + name + "'");
      return *value;
    }
    if (name.empty() ? is_manual_ : next_ > 0) {
      value_error("cannot switch between manual field specification and automatic field numbering");
    }
    std::size_t index = next_;
    if (name.empty()) {
      ++next_;
    } else {
      is_manual_ = true;
      index = name.size() > 9 ? SIZE_MAX : std::stoul(name);
    }
    if (index >= arguments_.positional.size()) {
      fail("IndexError", "Replacement index out of range for positional args tuple");
    }
    return arguments_.positional[index];
  }

  const Arguments& arguments_;
  std::size_t next_ = 0;
  bool is_manual_ = false;
};

}  // namespace

Text format_percent(const Value& format, const Value& arguments) {
  charge_bytes(format.string_value().size());
  return PercentFormatter(format.text_value(), arguments).run();
}

Text format_braces(const Text& format, const Arguments& arguments) {
  charge_bytes(format.size());
  return BraceFormatter(arguments).run(format, 1);
}

Text format_value(const Value& value, const Text& spec_text) {
  if (spec_text.empty()) return to_text(value);
  if (value.is_number()) {
    const FormatSpec spec = parse_format_spec(spec_text);
    return value.is(Kind::kFloating) ? format_float(value.floating_value(), spec)
                                     : format_integer(value, spec);
  }
  if (!value.is(Kind::kString)) {
    type_error("unsupported format string passed to " + type_name(value) + ".__format__");
  }
  const FormatSpec spec = parse_format_spec(spec_text);
  if ((spec.type != 0 && spec.type != 's') || spec.align == '=' || spec.sign != '-' ||
      spec.grouping != 0) {
    value_error("Invalid format specifier for object of type 'str'");
  }
  Text text = value.text_value();
  if (spec.precision) {
    const auto offsets = character_offsets(text.text);
    if (*spec.precision + 1 < offsets.size()) text = text.slice(0, offsets[*spec.precision]);
  }
  return pad(text, spec, '<');
}

}  // namespace batchmill::jinja
