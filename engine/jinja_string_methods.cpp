#include <algorithm>
#include <unordered_map>

#include "engine/jinja_arguments.h"
#include "engine/jinja_format.h"
#include "engine/jinja_format_spec.h"
#include "engine/jinja_methods.h"
#include "engine/jinja_operators.h"
#include "engine/jinja_runtime.h"
#include "engine/jinja_strings.h"
#include "engine/jinja_unicode.h"

namespace batchmill::jinja {
namespace {

Value like(const Value& self, Text text) {
  return Value::text(std::move(text), self.as<StringObject>().is_markup);
}

Value list_like(const Value& self, std::vector<Text> parts) {
  std::vector<Value> out;
  out.reserve(parts.size());
  for (Text& part : parts) out.push_back(like(self, std::move(part)));
  return Value::list(std::move(out));
}

template <Case kTo>
Value cased(const Value& self, const Arguments& arguments) {
  arguments.bind("str method", {});
  return like(self, change_case(self.text_value(), kTo));
}

template <Side kSide>
Value stripped(const Value& self, const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("strip", {"chars"});
  if (!bound.has(0) || bound[0].is(Kind::kNone)) {
    return like(self, strip(self.text_value(), kSide, nullptr));
  }
  const Text characters = bound.text(0, "");
  return like(self, strip(self.text_value(), kSide, &characters));
}

template <bool kFromRight>
Value split_by(const Value& self, const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("split", {"sep", "maxsplit"});
  const std::int64_t max_splits = bound.integer(1, -1);
  if (!bound.has(0) || bound[0].is(Kind::kNone)) {
    return list_like(self, split(self.text_value(), nullptr, max_splits, kFromRight));
  }
  const Text separator = bound.text(0, "");
  return list_like(self, split(self.text_value(), &separator, max_splits, kFromRight));
}

Value split_by_lines(const Value& self, const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("splitlines", {"keepends"});
  return list_like(self, split_lines(self.text_value(), bound.truth(0, false)));
}

template <bool kFromRight>
Value partitioned(const Value& self, const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("partition", {"sep"}, 1);
  const Text separator = bound.text(0, "");
  const Text& text = self.text_value();
  if (separator.empty()) value_error("empty separator");
  charge_bytes(text.size());
  const std::size_t found =
      kFromRight ? text.text.rfind(separator.text) : text.text.find(separator.text);
  if (found == std::string::npos) {
    const Value empty = like(self, Text());
    return kFromRight ? Value::tuple({empty, empty, self}) : Value::tuple({self, empty, empty});
  }
  const std::size_t behind = found + separator.size();
  return Value::tuple({like(self, text.slice(0, found)), like(self, text.slice(found, behind)),
                       like(self, text.slice(behind, text.size()))});
}

// The part of the text between optional bounds (in characters), and where it begins in bytes.
struct Part {
  std::string_view bytes;
  std::size_t begin = 0;
  bool is_valid = true;  // false: the start is behind the end
};

Part bounded(const Value& self, const BoundArguments& bound, std::size_t start_index) {
  const std::string& s = self.string_value();
  charge_bytes(s.size());
  const auto is_given = [&](std::size_t i) { return bound.has(i) && !bound[i].is(Kind::kNone); };
  if (!is_given(start_index) && !is_given(start_index + 1)) return {s, 0, true};
  const std::vector<std::size_t> offsets = character_offsets(s);
  const auto size = static_cast<std::int64_t>(offsets.size() - 1);
  const auto clamp = [&](std::size_t i, std::int64_t fallback) {
    std::int64_t index = is_given(i) ? index_value(bound[i]) : fallback;
    if (index < 0) index = std::max<std::int64_t>(0, index + size);
    return index;
  };
  const std::int64_t begin = clamp(start_index, 0);
  const std::int64_t end = std::min(clamp(start_index + 1, size), size);
  if (begin > end) return {{}, 0, false};
  const std::size_t from = offsets[static_cast<std::size_t>(begin)];
  return {std::string_view(s).substr(from, offsets[static_cast<std::size_t>(end)] - from), from,
          true};
}

template <bool kAtEnd>
Value has_affix(const Value& self, const Arguments& arguments) {
  const BoundArguments bound =
      arguments.bind(kAtEnd ? "endswith" : "startswith", {"affix", "start", "end"}, 1);
  const Part part = bounded(self, bound, 1);
  const auto matches = [&](const Value& affix) {
    if (!affix.is(Kind::kString)) {
      type_error(std::string(kAtEnd ? "endswith" : "startswith") +
                 " first arg must be str or a tuple of str, not " + type_name(affix));
    }
    if (!part.is_valid) return false;
    return kAtEnd ? part.bytes.ends_with(affix.string_value())
                  : part.bytes.starts_with(affix.string_value());
  };
  if (!bound[0].is(Kind::kTuple)) return Value::boolean(matches(bound[0]));
  for (const Value& affix : bound[0].items()) {
    if (matches(affix)) return Value::boolean(true);
  }
  return Value::boolean(false);
}

template <bool kFromRight, bool kMustExist>
Value find_text(const Value& self, const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("find", {"sub", "start", "end"}, 1);
  const Text wanted = bound.text(0, "");
  const Part part = bounded(self, bound, 1);
  const std::size_t found = !part.is_valid ? std::string_view::npos
                            : kFromRight   ? part.bytes.rfind(wanted.text)
                                           : part.bytes.find(wanted.text);
  if (found == std::string_view::npos) {
    if (kMustExist) value_error("substring not found");
    return Value::integer(-1);
  }
  const std::string_view before =
      std::string_view(self.string_value()).substr(0, part.begin + found);
  return Value::integer(static_cast<std::int64_t>(count_characters(before)));
}

Value count(const Value& self, const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("count", {"sub", "start", "end"}, 1);
  const Text wanted = bound.text(0, "");
  const Part part = bounded(self, bound, 1);
  if (!part.is_valid) return Value::integer(0);
  if (wanted.empty()) {
    return Value::integer(static_cast<std::int64_t>(count_characters(part.bytes)) + 1);
  }
  std::int64_t total = 0;
  for (std::size_t i = part.bytes.find(wanted.text); i != std::string_view::npos;
       i = part.bytes.find(wanted.text, i + wanted.size())) {
    ++total;
  }
  return Value::integer(total);
}

Value replaced(const Value& self, const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("replace", {"old", "new", "count"}, 2);
  return like(
      self, replace(self.text_value(), bound.text(0, ""), bound.text(1, ""), bound.integer(2, -1)));
}

template <bool kSuffix>
Value without_affix(const Value& self, const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("removeprefix", {"affix"}, 1);
  const Text affix = bound.text(0, "");
  const Text& text = self.text_value();
  if (affix.empty()) return self;
  if (kSuffix && text.text.ends_with(affix.text)) {
    return like(self, text.slice(0, text.size() - affix.size()));
  }
  if (!kSuffix && text.text.starts_with(affix.text)) {
    return like(self, text.slice(affix.size(), text.size()));
  }
  return self;
}

Value join(const Value& self, const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("join", {"iterable"}, 1);
  if (!is_iterable(bound[0])) type_error("can only join an iterable");
  Text out;
  bool is_first = true;
  for (const Value& item : iterate(bound[0])) {
    if (!item.is(Kind::kString)) {
      type_error("sequence item: expected str instance, " + type_name(item) + " found");
    }
    charge_bytes(self.string_value().size() + item.string_value().size());
    check_size(out.size() + self.string_value().size() + item.string_value().size());
    if (!is_first) out.append(self.text_value());
    is_first = false;
    out.append(item.text_value());
  }
  return like(self, std::move(out));
}

Value formatted(const Value& self, const Arguments& arguments) {
  return like(self, format_braces(self.text_value(), arguments));
}

Value formatted_map(const Value& self, const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("format_map", {"mapping"}, 1);
  if (!bound[0].is(Kind::kDict)) type_error("format_map() takes a mapping");
  Arguments named;
  for (const auto& [key, value] : bound[0].as<DictObject>().items) {
    if (key.is(Kind::kString)) named.named.emplace_back(key.string_value(), value);
  }
  return like(self, format_braces(self.text_value(), named));
}

template <char kAlign>
Value justified(const Value& self, const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("center", {"width", "fillchar"}, 1);
  FormatSpec spec;
  spec.fill = bound.text(1, " ");
  if (count_characters(spec.fill.text) != 1) {
    type_error("The fill character must be exactly one character long");
  }
  spec.width = static_cast<std::size_t>(std::max<std::int64_t>(0, bound.integer(0, 0)));
  const Text& text = self.text_value();
  const std::size_t length = self.as<StringObject>().num_characters;
  if (kAlign == '^' && spec.width > length && (spec.width - length) % 2 == 1 &&
      spec.width % 2 == 1) {
    // str.center puts the odd one to the left where the width is odd.
    Text out = spec.fill;
    spec.width -= 1;
    out.append(pad(text, spec, '^'));
    return like(self, std::move(out));
  }
  return like(self, pad(text, spec, kAlign));
}

Value zero_filled(const Value& self, const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("zfill", {"width"}, 1);
  const Text& text = self.text_value();
  const bool is_signed = text.text.starts_with('-') || text.text.starts_with('+');
  FormatSpec spec;
  spec.fill = Text("0");
  const std::int64_t width = bound.integer(0, 0) - (is_signed ? 1 : 0);
  spec.width = static_cast<std::size_t>(std::max<std::int64_t>(0, width));
  Text out = text.slice(0, is_signed ? 1 : 0);
  out.append(pad(text.slice(is_signed ? 1 : 0, text.size()), spec, '>'));
  return like(self, std::move(out));
}

Value tabs_expanded(const Value& self, const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("expandtabs", {"tabsize"});
  const std::int64_t size = std::clamp<std::int64_t>(bound.integer(0, 8), 0, 1 << 30);
  const Text& text = self.text_value();
  charge_bytes(text.size());
  Text out;
  std::int64_t column = 0;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t begin = i;
    const char32_t c = read_utf8(text.text, i);
    if (c == '\t') {
      const std::int64_t spaces = size == 0 ? 0 : size - column % size;
      charge_bytes(static_cast<std::size_t>(spaces));
      check_size(out.size() + static_cast<std::size_t>(spaces));
      out.append(std::string(static_cast<std::size_t>(spaces), ' '));
      column += spaces;
    } else {
      out.append(text, begin, i);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
  }
  return like(self, std::move(out));
}

// All characters have the property, and there is one.
template <bool (*kProperty)(char32_t), bool kEmpty = false>
Value all_are(const Value& self, const Arguments& arguments) {
  arguments.bind("str method", {});
  const std::string& s = self.string_value();
  charge_bytes(s.size());
  for (std::size_t i = 0; i < s.size();) {
    if (!kProperty(read_utf8(s, i))) return Value::boolean(false);
  }
  return Value::boolean(kEmpty || !s.empty());
}

bool is_ascii_character(char32_t c) { return c < 0x80; }

// There is a cased character and none has the other case.
template <bool kUpper>
Value is_in_case(const Value& self, const Arguments& arguments) {
  arguments.bind("str method", {});
  const std::string& s = self.string_value();
  charge_bytes(s.size());
  bool any = false;
  for (std::size_t i = 0; i < s.size();) {
    const char32_t c = read_utf8(s, i);
    if (!is_cased(c)) continue;
    if (kUpper ? !is_upper(c) : !is_lower(c)) return Value::boolean(false);
    any = true;
  }
  return Value::boolean(any);
}

Value is_title(const Value& self, const Arguments& arguments) {
  arguments.bind("istitle", {});
  const std::string& s = self.string_value();
  charge_bytes(s.size());
  bool any = false;
  bool after_cased = false;
  for (std::size_t i = 0; i < s.size();) {
    const char32_t c = read_utf8(s, i);
    if (is_cased(c) && is_lower(c) != after_cased) return Value::boolean(false);
    after_cased = is_cased(c);
    any = any || after_cased;
  }
  return Value::boolean(any);
}

Value is_identifier(const Value& self, const Arguments& arguments) {
  arguments.bind("isidentifier", {});
  const std::string& s = self.string_value();
  bool fits = !s.empty();
  for (std::size_t i = 0; fits && i < s.size();) {
    const bool is_first = i == 0;
    const char32_t c = read_utf8(s, i);
    fits = c == '_' || (is_first ? is_alpha(c) : is_alnum(c));
  }
  return Value::boolean(fits);
}

}  // namespace

Method find_string_method(std::string_view name) {
  static const std::unordered_map<std::string_view, Method> kMethods = {
      {"capitalize", cased<Case::kCapitalize>},
      {"casefold", cased<Case::kFold>},
      {"center", justified<'^'>},
      {"count", count},
      {"endswith", has_affix<true>},
      {"expandtabs", tabs_expanded},
      {"find", find_text<false, false>},
      {"format", formatted},
      {"format_map", formatted_map},
      {"index", find_text<false, true>},
      {"isalnum", all_are<is_alnum>},
      {"isalpha", all_are<is_alpha>},
      {"isascii", all_are<is_ascii_character, true>},
      {"isdecimal", all_are<is_decimal>},
      {"isdigit", all_are<is_digit>},
      {"isidentifier", is_identifier},
      {"islower", is_in_case<false>},
      {"isnumeric", all_are<is_numeric>},
      {"isprintable", all_are<is_printable, true>},
      {"isspace", all_are<is_space>},
      {"istitle", is_title},
      {"isupper", is_in_case<true>},
      {"join", join},
      {"ljust", justified<'<'>},
      {"lower", cased<Case::kLower>},
      {"lstrip", stripped<Side::kLeft>},
      {"partition", partitioned<false>},
      {"removeprefix", without_affix<false>},
      {"removesuffix", without_affix<true>},
      {"replace", replaced},
      {"rfind", find_text<true, false>},
      {"rindex", find_text<true, true>},
      {"rjust", justified<'>'>},
      {"rpartition", partitioned<true>},
      {"rsplit", split_by<true>},
      {"rstrip", stripped<Side::kRight>},
      {"split", split_by<false>},
      {"splitlines", split_by_lines},
      {"startswith", has_affix<false>},
      {"strip", stripped<Side::kBoth>},
      {"swapcase", cased<Case::kSwap>},
      {"title", cased<Case::kTitle>},
      {"upper", cased<Case::kUpper>},
      {"zfill", zero_filled},
  };
  const auto it = kMethods.find(name);
  return it == kMethods.end() ? nullptr : it->second;
}

}  // namespace batchmill::jinja
