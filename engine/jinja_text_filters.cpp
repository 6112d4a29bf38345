#include <algorithm>
#include <unordered_map>

#include "engine/jinja_builtins.h"
#include "engine/jinja_format.h"
#include "engine/jinja_methods.h"
#include "engine/jinja_operators.h"
#include "engine/jinja_print.h"
#include "engine/jinja_runtime.h"
#include "engine/jinja_strings.h"
#include "engine/jinja_unicode.h"

namespace batchmill::jinja {
namespace {

bool is_markup(const Value& value) {
  return value.is(Kind::kString) && value.as<StringObject>().is_markup;
}

// str(value), which stays a markup if it is one.
Value soft_string(const Value& value) {
  return value.is(Kind::kString) ? value : Value::text(to_text(value));
}

template <Case kTo>
Value change(const Value& input, const Arguments& arguments) {
  arguments.bind("filter", {});
  return Value::text(change_case(to_text(input), kTo), is_markup(input));
}

Value trim(const Value& input, const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("trim", {"chars"});
  const Text text = to_text(input);
  if (!bound.has(0) || bound[0].is(Kind::kNone)) {
    return Value::text(strip(text, Side::kBoth, nullptr), is_markup(input));
  }
  const Text characters = bound.text(0, "");
  return Value::text(strip(text, Side::kBoth, &characters), is_markup(input));
}

// Every run of letters after white space or one of - ( { [ < begins with a capital.
Value title(const Value& input, const Arguments& arguments) {
  arguments.bind("title", {});
  const Text text = to_text(input);
  charge_bytes(text.size() * 3);
  Text out;
  MarkReader marks(text);
  bool starts_word = true;
  for (std::size_t i = 0; i < text.size();) {
    const bool marked = marks.at(i);
    const char32_t c = read_utf8(text.text, i);
    std::string mapped;
    starts_word ? append_upper(mapped, c) : append_lower(mapped, c);
    starts_word = is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    out.append(mapped, marked);
  }
  return Value::text(std::move(out), is_markup(input));
}

Value replace_text(const Value& input, const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("replace", {"old", "new", "count"}, 2);
  const std::int64_t count = bound.has(2) && !bound[2].is(Kind::kNone) ? bound.integer(2, -1) : -1;
  return Value::text(replace(to_text(input), to_text(bound[0]), to_text(bound[1]), count));
}

Value indent(const Value& input, const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("indent", {"width", "first", "blank"});
  if (input.is_undefined()) undefined_error(input);
  if (!input.is(Kind::kString)) type_error("indent needs a str, not " + type_name(input));
  Text by;
  if (bound.has(0) && bound[0].is(Kind::kString)) {
    by = bound[0].text_value();
  } else {
    const std::int64_t width = std::max<std::int64_t>(0, bound.integer(0, 4));
    charge_bytes(static_cast<std::size_t>(width));
    by = Text(std::string(static_cast<std::size_t>(width), ' '));
  }
  const bool indents_blank = bound.truth(2, false);
  Text text = input.text_value();
  text.append("\n");
  Text out;
  bool is_first = true;
  for (const Text& line : split_lines(text, false)) {
    charge_bytes(by.size() + line.size());
    check_size(out.size() + by.size() + line.size());
    if (!is_first) out.append("\n");
    if (is_first ? bound.truth(1, false) : indents_blank || !line.empty()) out.append(by);
    is_first = false;
    out.append(line);
  }
  return Value::text(std::move(out), is_markup(input));
}

Value truncate(const Value& input, const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("truncate", {"length", "killwords", "end", "leeway"});
  const std::int64_t length = bound.integer(0, 255);
  const Text end = bound.text(2, "...");
  const std::int64_t leeway = bound.has(3) && !bound[3].is(Kind::kNone) ? bound.integer(3, 5) : 5;
  const Text text = to_text(input);
  const std::vector<std::size_t> offsets = character_offsets(text.text);
  charge_bytes(text.size());
  const auto end_length = static_cast<std::int64_t>(count_characters(end.text));
  if (length < end_length || leeway < 0) fail("AssertionError", "wrong length for truncate");
  if (static_cast<std::int64_t>(offsets.size()) - 1 <= length + leeway) return soft_string(input);
  Text out = text.slice(0, offsets[static_cast<std::size_t>(length - end_length)]);
  if (!bound.truth(1, false)) {
    const std::size_t space = out.text.rfind(' ');
    if (space != std::string::npos) out = out.slice(0, space);
  }
  out.append(end);
  return Value::text(std::move(out));
}

Value word_count(const Value& input, const Arguments& arguments) {
  arguments.bind("wordcount", {});
  const Text text = to_text(input);
  charge_bytes(text.size());
  std::int64_t count = 0;
  bool in_word = false;
  for (std::size_t i = 0; i < text.size();) {
    const char32_t c = read_utf8(text.text, i);
    const bool is_word = c == '_' || is_alnum(c);
    count += is_word && !in_word ? 1 : 0;
    in_word = is_word;
  }
  return Value::integer(count);
}

Value center(const Value& input, const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("center", {"width"});
  Arguments width;
  width.positional.push_back(bound.get(0, Value::integer(80)));
  return find_string_method("center")(soft_string(input), width);
}

Value format(const Value& input, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    fail("runtime", "can't handle positional and keyword arguments at the same time");
  }
  Value values = Value::tuple(arguments.positional);
  if (!arguments.named.empty()) {
    std::vector<std::pair<Value, Value>> items;
    for (const auto& [name, value] : arguments.named)
      items.emplace_back(Value::string(name), value);
    values = Value::dict_of(std::move(items));
  }
  return Value::text(format_percent(soft_string(input), values), is_markup(input));
}

// As in a path, which keeps its slashes, or as in a query, where a space is a plus.
void append_quoted(Text& out, const Text& text, bool keeps_slash) {
  charge_bytes(text.size() * 3);
  MarkReader marks(text);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool marked = marks.at(i);
    const auto c = static_cast<unsigned char>(text.text[i]);
    const bool is_plain = c < 0x80 && (is_alnum(c) || c == '_' || c == '.' || c == '-' ||
                                       c == '~' || (keeps_slash && c == '/'));
    if (is_plain) {
      out.append(std::string_view(&text.text[i], 1), marked);
    } else if (c == ' ' && !keeps_slash) {
      out.append("+", marked);
    } else {
      const char escaped[] = {'%', "0123456789ABCDEF"[c >> 4], "0123456789ABCDEF"[c & 15]};
      out.append(std::string_view(escaped, 3), marked);
    }
  }
}

Value url_encode(const Value& input, const Arguments& arguments) {
  arguments.bind("urlencode", {});
  Text out;
  if (input.is(Kind::kString) || !is_iterable(input)) {
    append_quoted(out, to_text(input), true);
    return Value::text(std::move(out));
  }
  const Value pairs = input.is(Kind::kDict) ? get_attribute(input, "items") : Value();
  const std::vector<Value> items =
      input.is(Kind::kDict) ? iterate(pairs.as<MethodObject>().method(input, Arguments()))
                            : iterate(input);
  for (const Value& item : items) {
    const std::vector<Value> pair = iterate(item);
    if (pair.size() != 2) value_error("urlencode needs pairs");
    if (!out.empty()) out.append("&");
    append_quoted(out, to_text(pair[0]), false);
    out.append("=");
    append_quoted(out, to_text(pair[1]), false);
  }
  return Value::text(std::move(out));
}

// Takes comments and tags out and joins what is left with single spaces.
Value strip_tags(const Value& input, const Arguments& arguments) {
  arguments.bind("striptags", {});
  Text text = to_text(input);
  charge_bytes(text.size());
  Text plain;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t tag = std::min(text.text.find('<', i), text.size());
    plain.append(text, i, tag);
    if (tag == text.size()) break;
    const bool is_comment = text.text.compare(tag, 4, "<!--") == 0;
    const std::size_t end = text.text.find(is_comment ? "-->" : ">", tag);
    if (end == std::string::npos) {
      plain.append(text, tag, text.size());
      break;
    }
    i = end + (is_comment ? 3 : 1);
  }
  Text out;
  for (const Text& word : split(plain, nullptr, -1, false)) {
    if (!out.empty()) out.append(" ");
    out.append(word);
  }
  static constexpr std::pair<const char*, const char*> kEntities[] = {
      {"&lt;", "<"},    {"&gt;", ">"},  {"&#34;", "\""},
      {"&quot;", "\""}, {"&#39;", "'"}, {"&amp;", "&"}};
  for (const auto& [entity, character] : kEntities) {
    out = replace(out, Text(entity), Text(character, !out.marked.empty()), -1);
  }
  return Value::text(std::move(out));
}

Value escape(const Value& input, const Arguments& arguments) {
  arguments.bind("escape", {});
  if (is_markup(input)) return input;
  return Value::text(escape_html(to_text(input)), true);
}

Value force_escape(const Value& input, const Arguments& arguments) {
  arguments.bind("forceescape", {});
  return Value::text(escape_html(to_text(input)), true);
}

Value safe(const Value& input, const Arguments& arguments) {
  arguments.bind("safe", {});
  return Value::text(to_text(input), true);
}

Value string(const Value& input, const Arguments& arguments) {
  arguments.bind("string", {});
  return soft_string(input);
}

Value pretty(const Value& input, const Arguments& arguments) {
  arguments.bind("pprint", {});
  return Value::text(repr(input));
}

Value to_json_filter(const Value& input, const Arguments& arguments) {
  const BoundArguments bound =
      arguments.bind("tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound.truth(0, false);
  if (bound.has(1) && !bound[1].is(Kind::kNone)) {
    if (bound[1].is(Kind::kString)) {
      style.indent = bound[1].text_value();
    } else {
      const std::int64_t width = std::max<std::int64_t>(0, index_value(bound[1]));
      charge_bytes(static_cast<std::size_t>(width));
      style.indent = Text(std::string(static_cast<std::size_t>(width), ' '));
    }
  }
  style.item_separator = Text(style.indent ? "," : ", ");
  style.key_separator = Text(": ");
  if (bound.has(2) && !bound[2].is(Kind::kNone)) {
    const std::vector<Value> separators = iterate(bound[2]);
    if (separators.size() != 2) value_error("separators must be a pair");
    style.item_separator = to_text(separators[0]);
    style.key_separator = to_text(separators[1]);
  }
  style.sort_keys = bound.truth(3, false);
  return Value::text(to_json(input, style));
}

Value unsupported(const Value&, const Arguments&) {
  fail("runtime", "this filter of Jinja is not supported");
}

}  // namespace

Filter find_text_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, Filter> kFilters = {
      {"capitalize", change<Case::kCapitalize>},
      {"center", center},
      {"e", escape},
      {"escape", escape},
      {"forceescape", force_escape},
      {"format", format},
      {"indent", indent},
      {"lower", change<Case::kLower>},
      {"pprint", pretty},
      {"random", unsupported},
      {"replace", replace_text},
      {"safe", safe},
      {"string", string},
      {"striptags", strip_tags},
      {"title", title},
      {"tojson", to_json_filter},
      {"trim", trim},
      {"truncate", truncate},
      {"upper", change<Case::kUpper>},
      {"urlencode", url_encode},
      {"urlize", unsupported},
      {"wordcount", word_count},
      {"wordwrap", unsupported},
      {"xmlattr", unsupported},
      {"filesizeformat", unsupported},
  };
  const auto it = kFilters.find(name);
  return it == kFilters.end() ? nullptr : it->second;
}

}  // namespace batchmill::jinja
