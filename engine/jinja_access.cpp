#include <algorithm>

#include "engine/jinja_methods.h"
#include "engine/jinja_operators.h"
#include "engine/jinja_print.h"
#include "engine/jinja_runtime.h"

namespace batchmill::jinja {
namespace {

std::string object_repr(const Value& object) {
  return object.is(Kind::kNone) ? "None" : type_name(object) + " object";
}

Value missing(const Value& object, const Value& key) {
  if (!key.is(Kind::kString)) {
    return Value::undefined(object_repr(object) + " has no element " + repr(key).text);
  }
  return Value::undefined("'" + object_repr(object) + "' has no attribute " + repr(key).text);
}

// The value of an attribute that Python finds with getattr, or nothing. `name` begins with "_" or
// changes the object: an undefined that the sandbox refuses to use.
std::optional<Value> python_attribute(const Value& object, const std::string& name) {
  const auto unsafe = [&] {
    return Value::undefined(
        "access to attribute '" + name + "' of '" + type_name(object) + "' object is unsafe.",
        true);
  };
  if (name.starts_with("__") && is_object_attribute(name)) return unsafe();
  if (object.is(Kind::kNamespace)) {
    for (const auto& [key, value] : object.as<NamespaceObject>().attributes) {
      if (key == name) return name.starts_with("_") ? unsafe() : value;
    }
    return std::nullopt;
  }
  if (is_mutator(object, name)) return unsafe();
  return find_attribute(object, name);
}

// Index of an element that is there; nothing otherwise.
std::optional<std::size_t> element_index(const Value& key, std::size_t length) {
  if (!key.is(Kind::kInteger) && !key.is(Kind::kBoolean)) return std::nullopt;
  std::int64_t index = key.integer_value();
  const auto size = static_cast<std::int64_t>(length);
  if (index < 0) index += size;
  if (index < 0 || index >= size) return std::nullopt;
  return static_cast<std::size_t>(index);
}

Value character_at(const Value& string, std::size_t index) {
  const auto& body = string.as<StringObject>();
  if (body.is_ascii) return Value::text(body.text.slice(index, index + 1), body.is_markup);
  charge_bytes(body.text.size());
  std::size_t begin = 0;
  for (; index > 0; --index) read_utf8(body.text.text, begin);
  std::size_t end = begin;
  read_utf8(body.text.text, end);
  return Value::text(body.text.slice(begin, end), body.is_markup);
}

std::optional<Value> element(const Value& object, const Value& key) {
  switch (object.kind()) {
    case Kind::kDict: {
      if (!is_hashable(key)) return std::nullopt;
      const Value* found = object.as<DictObject>().find(key);
      return found == nullptr ? std::nullopt : std::optional<Value>(*found);
    }
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange: {
      const auto index = element_index(key, *length_of(object));
      if (!index) return std::nullopt;
      if (object.is(Kind::kString)) return character_at(object, *index);
      if (object.is(Kind::kRange)) {
        const auto& range = object.as<RangeObject>();
        return Value::integer(range.start + static_cast<std::int64_t>(*index) * range.step);
      }
      return object.items()[*index];
    }
    default:
      return std::nullopt;
  }
}

// The indices from, from + by, … that object[start:stop:step] takes, as Python's slice.indices.
struct SliceIndices {
  std::size_t from = 0;
  std::int64_t by = 1;
  std::size_t count = 0;
  std::size_t operator[](std::size_t i) const {
    return static_cast<std::size_t>(static_cast<std::int64_t>(from) +
                                    static_cast<std::int64_t>(i) * by);
  }
};

SliceIndices slice_indices(const Value& start, const Value& stop, const Value& step,
                           std::size_t length) {
  const auto bound = [&](const Value& value, std::int64_t fallback) {
    if (value.is(Kind::kNone)) return fallback;
    if (!value.is_integer() && !value.is(Kind::kBoolean)) {
      type_error("slice indices must be integers or None or have an __index__ method");
    }
    return index_value(value);
  };
  const auto size = static_cast<std::int64_t>(length);
  const std::int64_t by = std::clamp<std::int64_t>(bound(step, 1), -size - 1, size + 1);
  if (by == 0) value_error("slice step cannot be zero");
  const std::int64_t low = by < 0 ? -1 : 0;
  const std::int64_t high = by < 0 ? size - 1 : size;
  const auto clamp = [&](std::int64_t index) {
    return std::clamp(index < 0 ? std::max(index, -size - 1) + size : index, low, high);
  };
  std::int64_t from = by < 0 ? high : low;
  std::int64_t to = by < 0 ? low : high;
  if (!start.is(Kind::kNone)) from = clamp(bound(start, 0));
  if (!stop.is(Kind::kNone)) to = clamp(bound(stop, 0));
  const std::int64_t distance = by > 0 ? to - from : from - to;
  const std::int64_t stride = by > 0 ? by : -by;
  if (distance <= 0) return {};
  return {static_cast<std::size_t>(from), by,
          static_cast<std::size_t>((distance + stride - 1) / stride)};
}

}  // namespace

Value get_attribute(const Value& object, const std::string& name) {
  charge();
  if (object.is_undefined()) undefined_error(object);
  if (auto value = python_attribute(object, name)) return *value;
  if (object.is(Kind::kDict)) {
    if (const Value* value = object.as<DictObject>().find(name)) return *value;
  }
  return missing(object, Value::string(name));
}

Value get_item(const Value& object, const Value& key) {
  charge();
  if (object.is_undefined()) undefined_error(object);
  if (auto value = element(object, key)) return *value;
  if (key.is(Kind::kString)) {
    if (auto value = python_attribute(object, key.string_value())) return *value;
  }
  return missing(object, key);
}

Value get_slice(const Value& object, const Value& start, const Value& stop, const Value& step) {
  charge();
  if (object.is_undefined()) undefined_error(object);
  if (object.is(Kind::kDict)) type_error("unhashable type: 'slice'");
  if (!object.is(Kind::kString) && !object.is_sequence() && !object.is(Kind::kRange)) {
    type_error("'" + type_name(object) + "' object is not subscriptable");
  }
  const SliceIndices indices = slice_indices(start, stop, step, *length_of(object));
  if (object.is(Kind::kString)) {
    const auto& body = object.as<StringObject>();
    charge_bytes(body.text.size());
    const std::vector<std::size_t> offsets =
        body.is_ascii ? std::vector<std::size_t>() : character_offsets(body.text.text);
    const auto offset = [&](std::size_t i) { return body.is_ascii ? i : offsets[i]; };
    Text out;
    if (indices.by == 1) {
      out.append(body.text, offset(indices.from), offset(indices.from + indices.count));
    } else {
      charge(indices.count);
      for (std::size_t i = 0; i < indices.count; ++i) {
        out.append(body.text, offset(indices[i]), offset(indices[i] + 1));
      }
    }
    return Value::text(std::move(out), body.is_markup);
  }
  charge(indices.count);
  std::vector<Value> items;
  for (std::size_t i = 0; i < indices.count; ++i) {
    items.push_back(*element(object, Value::integer(static_cast<std::int64_t>(indices[i]))));
  }
  return object.is(Kind::kTuple) ? Value::tuple(std::move(items)) : Value::list(std::move(items));
}

}  // namespace batchmill::jinja
