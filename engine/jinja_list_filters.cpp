#include <algorithm>
#include <cstdint>
#include <limits>
#include <unordered_map>

#include "engine/jinja_builtins.h"
#include "engine/jinja_methods.h"
#include "engine/jinja_operators.h"
#include "engine/jinja_print.h"
#include "engine/jinja_runtime.h"
#include "engine/jinja_strings.h"

namespace batchmill::jinja {
namespace {

Value generator(std::vector<Value> items) {
  return Value::object(Kind::kGenerator, std::make_shared<GeneratorObject>(std::move(items)));
}

// Reads "a.b.0" from items, with a default for what is undefined.
class AttributePath {
 public:
  explicit AttributePath(const Value& attribute, Value fallback = Value())
      : fallback_(std::move(fallback)) {
    if (attribute.is(Kind::kNone) || attribute.is_undefined()) return;
    if (!attribute.is(Kind::kString)) {
      parts_.push_back(attribute);
      return;
    }
    const Text dot(".");
    for (const Text& part : split(attribute.text_value(), &dot, -1, false)) {
      // Longer numbers are no index of anything.
      const bool is_index = !part.empty() &&
                            part.size() <= std::numeric_limits<std::int64_t>::digits10 &&
                            part.text.find_first_not_of("0123456789") == std::string::npos;
      parts_.push_back(is_index ? Value::integer(part.text) : Value::text(part));
    }
  }

  Value operator()(Value item) const {
    for (const Value& part : parts_) {
      item = get_item(item, part);
      if (item.is_undefined() && !fallback_.is_undefined() && !fallback_.is(Kind::kNone)) {
        item = fallback_;
      }
    }
    return item;
  }

 private:
  std::vector<Value> parts_;
  Value fallback_;
};

Value fold_case(const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.is(Kind::kString)) return value;
  return Value::text(change_case(value.text_value(), Case::kLower));
}

Value first(const Value& input, const Arguments& arguments) {
  arguments.bind("first", {});
  const Value empty = Value::undefined("No first item, sequence was empty.");
  if (input.is_sequence()) return input.items().empty() ? empty : input.items().front();
  if (input.is(Kind::kString)) {
    return input.string_value().empty() ? empty : get_item(input, Value::integer(0));
  }
  if (input.is(Kind::kGenerator)) {
    auto& walk = input.as<GeneratorObject>();
    return walk.next < walk.items.size() ? walk.items[walk.next++] : empty;
  }
  const std::vector<Value> items = iterate(input);
  return items.empty() ? empty : items.front();
}

Value last(const Value& input, const Arguments& arguments) {
  arguments.bind("last", {});
  const Value empty = Value::undefined("No last item, sequence was empty.");
  if (input.is_sequence()) return input.items().empty() ? empty : input.items().back();
  if (input.is(Kind::kString)) {
    return input.string_value().empty() ? empty : get_item(input, Value::integer(-1));
  }
  if (input.is_undefined()) undefined_error(input);
  if (input.is(Kind::kGenerator)) type_error("'generator' object is not reversible");
  const std::vector<Value> items = iterate(input);
  return items.empty() ? empty : items.back();
}

Value length(const Value& input, const Arguments& arguments) {
  arguments.bind("length", {});
  const auto count = length_of(input);
  if (!count) type_error("object of type '" + type_name(input) + "' has no len()");
  return Value::integer(static_cast<std::int64_t>(*count));
}

Value list(const Value& input, const Arguments& arguments) {
  arguments.bind("list", {});
  return Value::list(iterate(input));
}

Value join(const Value& input, const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("join", {"d", "attribute"});
  const Text separator = to_text(bound.get(0, Value::string("")));
  const AttributePath path(bound.get(1, Value::none()));
  Text out;
  bool is_first = true;
  for (const Value& item : iterate(input)) {
    charge_bytes(separator.size());
    check_size(out.size() + separator.size());
    if (!is_first) out.append(separator);
    is_first = false;
    append_text(out, path(item));
  }
  return Value::text(std::move(out));
}

std::vector<Value> sorted(std::vector<Value> items, const std::vector<Value>& keys, bool reverse) {
  std::vector<std::size_t> order(items.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return reverse ? less(keys[b], keys[a]) : less(keys[a], keys[b]);
  });
  std::vector<Value> out;
  out.reserve(items.size());
  for (const std::size_t i : order) out.push_back(std::move(items[i]));
  return out;
}

Value sort(const Value& input, const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("sort", {"reverse", "case_sensitive", "attribute"});
  const bool case_sensitive = bound.truth(1, false);
  const Value attribute = bound.get(2, Value::none());
  std::vector<AttributePath> paths;
  if (attribute.is(Kind::kString)) {
    const Text comma(",");
    for (Text& part : split(attribute.text_value(), &comma, -1, false)) {
      paths.emplace_back(Value::text(std::move(part)));
    }
  } else {
    paths.emplace_back(attribute);
  }
  std::vector<Value> items = iterate(input);
  std::vector<Value> keys;
  keys.reserve(items.size());
  for (const Value& item : items) {
    std::vector<Value> key;
    for (const AttributePath& path : paths) key.push_back(fold_case(path(item), case_sensitive));
    keys.push_back(Value::list(std::move(key)));
  }
  return Value::list(sorted(std::move(items), keys, bound.truth(0, false)));
}

Value unique(const Value& input, const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("unique", {"case_sensitive", "attribute"});
  const AttributePath path(bound.get(1, Value::none()));
  std::vector<Value> out;
  std::unordered_multimap<std::size_t, Value> seen;
  for (const Value& item : iterate(input)) {
    Value key = fold_case(path(item), bound.truth(0, false));
    const std::size_t hash = hash_of(key);
    const auto [begin, end] = seen.equal_range(hash);
    if (std::any_of(begin, end, [&](const auto& known) { return equal(known.second, key); })) {
      continue;
    }
    seen.emplace(hash, std::move(key));
    out.push_back(item);
  }
  return generator(std::move(out));
}

template <bool kMax>
Value extreme(const Value& input, const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("min", {"case_sensitive", "attribute"});
  const AttributePath path(bound.get(1, Value::none()));
  const std::vector<Value> items = iterate(input);
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  Value best = items.front();
  Value best_key = fold_case(path(best), bound.truth(0, false));
  for (std::size_t i = 1; i < items.size(); ++i) {
    Value key = fold_case(path(items[i]), bound.truth(0, false));
    if (kMax ? less(best_key, key) : less(key, best_key)) {
      best = items[i];
      best_key = std::move(key);
    }
  }
  return best;
}

Value sum(const Value& input, const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("sum", {"attribute", "start"});
  const AttributePath path(bound.get(0, Value::none()));
  Value total = bound.get(1, Value::integer(0));
  if (total.is(Kind::kString)) type_error("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : iterate(input)) total = arithmetic(Operator::kAdd, total, path(item));
  return total;
}

// The arguments from the n-th positional one on.
Arguments rest_of(const Arguments& arguments, std::size_t n) {
  Arguments out;
  out.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(n),
                        arguments.positional.end());
  out.named = arguments.named;
  return out;
}

std::string name_of(const Value& value) { return to_text(value).text; }

Value map(const Value& input, const Arguments& arguments) {
  std::vector<Value> out;
  if (arguments.positional.empty() && arguments.find("attribute") != nullptr) {
    for (const auto& [name, value] : arguments.named) {
      if (name != "attribute" && name != "default") {
        fail("runtime", "Unexpected keyword argument '" + name + "'");
      }
    }
    const Value* fallback = arguments.find("default");
    const AttributePath path(*arguments.find("attribute"),
                             fallback == nullptr ? Value() : *fallback);
    for (const Value& item : iterate(input)) out.push_back(path(item));
    return generator(std::move(out));
  }
  if (arguments.positional.empty()) fail("runtime", "map requires a filter argument");
  const std::string name = name_of(arguments.positional[0]);
  const Filter filter = find_filter(name);
  if (filter == nullptr) fail("runtime", "No filter named '" + name + "'.");
  const Arguments rest = rest_of(arguments, 1);
  for (const Value& item : iterate(input)) out.push_back(filter(item, rest));
  return generator(std::move(out));
}

template <bool kKeeps, bool kByAttribute>
Value select(const Value& input, const Arguments& arguments) {
  std::size_t next = 0;
  Value attribute = Value::none();
  if (kByAttribute) {
    if (arguments.positional.empty()) fail("runtime", "Missing parameter for attribute name");
    attribute = arguments.positional[next++];
  }
  const AttributePath path(attribute);
  Test test = nullptr;
  Arguments rest;
  if (next < arguments.positional.size()) {
    const std::string name = name_of(arguments.positional[next]);
    test = find_test(name);
    if (test == nullptr) fail("runtime", "No test named '" + name + "'.");
    rest = rest_of(arguments, next + 1);
  }
  std::vector<Value> out;
  for (const Value& item : iterate(input)) {
    const Value value = path(item);
    if ((test == nullptr ? truthy(value) : test(value, rest)) == kKeeps) out.push_back(item);
  }
  return generator(std::move(out));
}

Value batch(const Value& input, const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("batch", {"linecount", "fill_with"}, 1);
  const auto size = static_cast<std::size_t>(std::max<std::int64_t>(1, bound.integer(0, 1)));
  std::vector<Value> out;
  std::vector<Value> line;
  for (Value& item : iterate(input)) {
    if (line.size() == size) {
      out.push_back(Value::list(std::move(line)));
      line.clear();
    }
    line.push_back(std::move(item));
  }
  if (!line.empty()) {
    if (bound.has(1) && !bound[1].is(Kind::kNone)) {
      charge(size - line.size());
      line.resize(size, bound[1]);
    }
    out.push_back(Value::list(std::move(line)));
  }
  return generator(std::move(out));
}

Value slice(const Value& input, const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("slice", {"slices", "fill_with"}, 1);
  const std::int64_t count = bound.integer(0, 1);
  if (count == 0) fail("ZeroDivisionError", "integer division or modulo by zero");
  const std::vector<Value> items = iterate(input);
  const auto slices = static_cast<std::size_t>(std::max<std::int64_t>(0, count));
  charge(slices);
  std::vector<Value> out;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < slices; ++i) {
    const bool is_longer = i < items.size() % slices;
    const std::size_t end = begin + items.size() / slices + (is_longer ? 1 : 0);
    std::vector<Value> line(items.begin() + static_cast<std::ptrdiff_t>(begin),
                            items.begin() + static_cast<std::ptrdiff_t>(end));
    if (bound.has(1) && !bound[1].is(Kind::kNone) && !is_longer) line.push_back(bound[1]);
    out.push_back(Value::list(std::move(line)));
    begin = end;
  }
  return generator(std::move(out));
}

Value group_by(const Value& input, const Arguments& arguments) {
  const BoundArguments bound =
      arguments.bind("groupby", {"attribute", "default", "case_sensitive"}, 1);
  const AttributePath path(bound[0], bound.get(1, Value::none()));
  std::vector<Value> items = iterate(input);
  std::vector<Value> keys;
  for (const Value& item : items) keys.push_back(fold_case(path(item), bound.truth(2, false)));
  items = sorted(std::move(items), keys, false);
  std::vector<Value> out;
  for (std::size_t i = 0; i < items.size();) {
    const Value grouper = path(items[i]);
    const Value key = fold_case(grouper, bound.truth(2, false));
    std::vector<Value> members;
    while (i < items.size() && equal(fold_case(path(items[i]), bound.truth(2, false)), key)) {
      members.push_back(items[i++]);
    }
    auto group =
        std::make_shared<ListObject>(std::vector<Value>{grouper, Value::list(std::move(members))});
    group->is_group = true;
    out.push_back(Value::object(Kind::kTuple, std::move(group)));
  }
  return Value::list(std::move(out));
}

const DictObject& dict_of(const Value& value) {
  if (value.is_undefined()) undefined_error(value);
  if (!value.is(Kind::kDict)) {
    fail("AttributeError", "'" + type_name(value) + "' object has no attribute 'items'");
  }
  return value.as<DictObject>();
}

Value dict_sort(const Value& input, const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("dictsort", {"case_sensitive", "by", "reverse"});
  const std::string by = bound.text(1, "key").text;
  if (by != "key" && by != "value") {
    fail("runtime", "You can only sort by either \"key\" or \"value\"");
  }
  std::vector<Value> items;
  std::vector<Value> keys;
  for (const auto& [key, value] : dict_of(input).items) {
    charge();
    items.push_back(Value::tuple({key, value}));
    keys.push_back(fold_case(by == "key" ? key : value, bound.truth(0, false)));
  }
  return Value::list(sorted(std::move(items), keys, bound.truth(2, false)));
}

Value items(const Value& input, const Arguments& arguments) {
  arguments.bind("items", {});
  std::vector<Value> out;
  if (input.is_undefined()) return generator(std::move(out));
  if (!input.is(Kind::kDict)) type_error("Can only get item pairs from a mapping.");
  for (const auto& [key, value] : input.as<DictObject>().items) {
    charge();
    out.push_back(Value::tuple({key, value}));
  }
  return generator(std::move(out));
}

Value reverse(const Value& input, const Arguments& arguments) {
  arguments.bind("reverse", {});
  if (input.is(Kind::kString)) {
    return get_slice(input, Value::none(), Value::none(), Value::integer(-1));
  }
  if (!is_iterable(input)) fail("runtime", "argument must be iterable");
  std::vector<Value> out = iterate(input);
  std::reverse(out.begin(), out.end());
  return generator(std::move(out));
}

Value fallback(const Value& input, const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("default", {"default_value", "boolean"});
  const bool is_missing = input.is_undefined() || (bound.truth(1, false) && !truthy(input));
  return is_missing ? bound.get(0, Value::string("")) : input;
}

Value attribute(const Value& input, const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("attr", {"name"}, 1);
  const std::string name = name_of(bound[0]);
  // Only the attribute, not the key.
  if (input.is(Kind::kDict) && !find_attribute(input, name)) {
    return get_attribute(Value::dict_of({}), name);
  }
  return get_attribute(input, name);
}

}  // namespace

Filter find_list_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, Filter> kFilters = {
      {"attr", attribute},
      {"batch", batch},
      {"count", length},
      {"d", fallback},
      {"default", fallback},
      {"dictsort", dict_sort},
      {"first", first},
      {"groupby", group_by},
      {"items", items},
      {"join", join},
      {"last", last},
      {"length", length},
      {"list", list},
      {"map", map},
      {"max", extreme<true>},
      {"min", extreme<false>},
      {"reject", select<false, false>},
      {"rejectattr", select<false, true>},
      {"reverse", reverse},
      {"select", select<true, false>},
      {"selectattr", select<true, true>},
      {"slice", slice},
      {"sort", sort},
      {"sum", sum},
      {"unique", unique},
  };
  const auto it = kFilters.find(name);
  return it == kFilters.end() ? nullptr : it->second;
}

Filter find_filter(std::string_view name) {
  if (const Filter filter = find_text_filter(name)) return filter;
  if (const Filter filter = find_list_filter(name)) return filter;
  return find_number_filter(name);
}

}  // namespace batchmill::jinja
