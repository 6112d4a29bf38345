#include "engine/jinja_operators.h"

#include <cmath>
#include <functional>

#include "engine/jinja_arguments.h"
#include "engine/jinja_runtime.h"

namespace batchmill::jinja {
namespace {

int sign_of(double a, double b) { return a < b ? -1 : a > b ? 1 : 0; }

// Order of two numbers; nothing if one is not a number (NaN).
std::optional<int> compare_numbers(const Value& a, const Value& b) {
  const bool a_floats = a.is(Kind::kFloating);
  const bool b_floats = b.is(Kind::kFloating);
  if (!a_floats && !b_floats) {
    if (!a.is(Kind::kBigInteger) && !b.is(Kind::kBigInteger)) {
      const auto x = a.integer_value();
      const auto y = b.integer_value();
      return x < y ? -1 : x > y ? 1 : 0;
    }
    return BigInt::compare(big_value(a), big_value(b));
  }
  if (a_floats && b_floats) {
    if (std::isnan(a.floating_value()) || std::isnan(b.floating_value())) return std::nullopt;
    return sign_of(a.floating_value(), b.floating_value());
  }
  // Integer against float, exactly: compare with the float's integer part, then its fraction.
  const double number = a_floats ? a.floating_value() : b.floating_value();
  if (std::isnan(number)) return std::nullopt;
  const BigInt whole = big_value(a_floats ? b : a);
  int order = 0;  // of the integer against the float
  if (std::isinf(number)) {
    order = number > 0 ? -1 : 1;
  } else {
    order = BigInt::compare(whole, BigInt::from_double(number));
    if (order == 0) order = -sign_of(number - std::trunc(number), 0.0);
  }
  return a_floats ? -order : order;
}

bool same_object(const Value& a, const Value& b) {
  return a.shared() != nullptr && a.shared() == b.shared();
}

bool equal_dicts(const DictObject& a, const DictObject& b) {
  if (a.items.size() != b.items.size()) return false;
  for (const auto& [key, value] : a.items) {
    const Value* other = b.find(key);
    if (other == nullptr || !equal(value, *other)) return false;
  }
  return true;
}

bool equal_views(const Value& a, const Value& b) {
  const auto what = a.as<DictViewObject>().what;
  if (what != b.as<DictViewObject>().what || what == DictViewObject::What::kValues) return false;
  const auto& x = a.as<DictViewObject>().dict.as<DictObject>();
  const auto& y = b.as<DictViewObject>().dict.as<DictObject>();
  if (what == DictViewObject::What::kItems) return equal_dicts(x, y);
  if (x.items.size() != y.items.size()) return false;
  for (const auto& item : x.items) {
    if (y.find(item.first) == nullptr) return false;
  }
  return true;
}

bool contains_item(const Value& container, const Value& item) {
  for (const Value& candidate : iterate(container)) {
    if (same_object(candidate, item) || equal(candidate, item)) return true;
  }
  return false;
}

std::size_t mix(std::size_t seed, std::size_t hash) {
  return seed ^ (hash + 0x9E3779B97F4A7C15ULL + (seed << 6) + (seed >> 2));
}

}  // namespace

std::string type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBoolean:
      return "bool";
    case Kind::kInteger:
    case Kind::kBigInteger:
      return "int";
    case Kind::kFloating:
      return "float";
    case Kind::kString:
      return value.as<StringObject>().is_markup ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kDictView:
      switch (value.as<DictViewObject>().what) {
        case DictViewObject::What::kItems:
          return "dict_items";
        case DictViewObject::What::kKeys:
          return "dict_keys";
        case DictViewObject::What::kValues:
          return "dict_values";
      }
      break;
    case Kind::kGenerator:
      return "generator";
    case Kind::kRange:
      return "range";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kMacro:
      return "Macro";
    case Kind::kFunction:
      return "function";
    case Kind::kMethod:
      return "builtin_function_or_method";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kCycler:
      return "Cycler";
    case Kind::kJoiner:
      return "Joiner";
  }
  return "object";
}

bool truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBoolean:
    case Kind::kInteger:
      return value.integer_value() != 0;
    case Kind::kFloating:
      return value.floating_value() != 0.0;
    default:
      break;
  }
  if (value.is(Kind::kLoop)) return true;
  const auto length = length_of(value);
  return !length || *length != 0;
}

bool equal(const Value& a, const Value& b) {
  charge();
  const Nested nested;
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  if (same_object(a, b)) return true;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      charge(std::min(a.string_value().size(), b.string_value().size()) / 256);
      return a.string_value() == b.string_value();
    case Kind::kList:
    case Kind::kTuple: {
      if (a.items().size() != b.items().size()) return false;
      for (std::size_t i = 0; i < a.items().size(); ++i) {
        if (!equal(a.items()[i], b.items()[i])) return false;
      }
      return true;
    }
    case Kind::kDict:
      return equal_dicts(a.as<DictObject>(), b.as<DictObject>());
    case Kind::kDictView:
      return equal_views(a, b);
    case Kind::kRange: {
      const auto& x = a.as<RangeObject>();
      const auto& y = b.as<RangeObject>();
      return x.count == y.count &&
             (x.count == 0 || (x.start == y.start && (x.count == 1 || x.step == y.step)));
    }
    case Kind::kMethod:
      return a.as<MethodObject>().name == b.as<MethodObject>().name &&
             same_object(a.as<MethodObject>().self, b.as<MethodObject>().self);
    default:
      return false;
  }
}

bool less(const Value& a, const Value& b) { return compare(Operator::kLess, a, b); }

bool compare(Operator op, const Value& a, const Value& b) {
  if (op == Operator::kEqual) return equal(a, b);
  if (op == Operator::kNotEqual) return !equal(a, b);
  if (op == Operator::kIn) return contains(b, a);
  if (op == Operator::kNotIn) return !contains(b, a);
  charge();
  const Nested nested;
  if (a.is_undefined()) undefined_error(a);
  if (b.is_undefined()) undefined_error(b);
  std::optional<int> order;
  if (a.is_number() && b.is_number()) {
    order = compare_numbers(a, b);
    if (!order) return false;
  } else if (a.is(Kind::kString) && b.is(Kind::kString)) {
    charge(std::min(a.string_value().size(), b.string_value().size()) / 256);
    order = a.string_value().compare(b.string_value());
  } else if (a.is_sequence() && a.kind() == b.kind()) {
    std::size_t i = 0;
    const auto& x = a.items();
    const auto& y = b.items();
    while (i < x.size() && i < y.size() && equal(x[i], y[i])) ++i;
    if (i < x.size() && i < y.size()) return compare(op, x[i], y[i]);
    order = x.size() < y.size() ? -1 : x.size() > y.size() ? 1 : 0;
  } else {
    const char* sign = op == Operator::kLess           ? "<"
                       : op == Operator::kLessEqual    ? "<="
                       : op == Operator::kGreaterEqual ? ">="
                                                       : ">";
    type_error(std::string("'") + sign + "' not supported between instances of '" + type_name(a) +
               "' and '" + type_name(b) + "'");
  }
  switch (op) {
    case Operator::kLess:
      return *order < 0;
    case Operator::kLessEqual:
      return *order <= 0;
    case Operator::kGreater:
      return *order > 0;
    default:
      return *order >= 0;
  }
}

bool contains(const Value& container, const Value& item) {
  charge();
  switch (container.kind()) {
    case Kind::kString:
      if (item.is_undefined()) undefined_error(item);
      if (!item.is(Kind::kString)) {
        type_error("'in <string>' requires string as left operand, not " + type_name(item));
      }
      charge_bytes(container.string_value().size());
      return container.string_value().find(item.string_value()) != std::string::npos;
    case Kind::kDict:
      hash_of(item);
      return container.as<DictObject>().find(item) != nullptr;
    case Kind::kDictView:
      if (container.as<DictViewObject>().what == DictViewObject::What::kKeys) {
        return contains(container.as<DictViewObject>().dict, item);
      }
      return contains_item(container, item);
    default:
      if (!is_iterable(container)) {
        type_error("argument of type '" + type_name(container) + "' is not iterable");
      }
      return contains_item(container, item);
  }
}

bool is_hashable(const Value& value) {
  if (value.is(Kind::kList) || value.is(Kind::kDict) || value.is(Kind::kDictView)) return false;
  if (!value.is(Kind::kTuple)) return true;
  const Nested nested;
  charge(value.items().size());
  for (const Value& item : value.items()) {
    if (!is_hashable(item)) return false;
  }
  return true;
}

std::size_t hash_of(const Value& value) {
  charge();
  const Nested nested;
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return static_cast<std::size_t>(value.kind()) + 77;
    case Kind::kBoolean:
    case Kind::kInteger:
      return std::hash<double>()(static_cast<double>(value.integer_value()));
    case Kind::kBigInteger:
      return std::hash<double>()(big_value(value).to_double());
    case Kind::kFloating:
      return std::hash<double>()(value.floating_value());
    case Kind::kString:
      return std::hash<std::string>()(value.string_value());
    case Kind::kTuple: {
      std::size_t hash = value.items().size();
      for (const Value& item : value.items()) hash = mix(hash, hash_of(item));
      return hash;
    }
    case Kind::kList:
    case Kind::kDict:
    case Kind::kDictView:
      type_error("unhashable type: '" + type_name(value) + "'");
    default:
      return std::hash<const void*>()(value.shared().get());
  }
}

void undefined_error(const Value& value) {
  const auto* body = static_cast<const UndefinedObject*>(value.shared().get());
  if (body == nullptr) fail("undefined", "the value is undefined");
  fail(body->is_unsafe ? "security" : "undefined", body->message);
}

std::optional<std::size_t> length_of(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return value.as<StringObject>().num_characters;
    case Kind::kList:
    case Kind::kTuple:
      return value.items().size();
    case Kind::kDict:
      return value.as<DictObject>().items.size();
    case Kind::kDictView:
      return length_of(value.as<DictViewObject>().dict);
    case Kind::kRange:
      return static_cast<std::size_t>(value.as<RangeObject>().count);
    case Kind::kLoop:
      return value.as<LoopObject>().items.size();
    default:
      return std::nullopt;
  }
}

bool is_iterable(const Value& value) {
  return value.is(Kind::kGenerator) || length_of(value).has_value();
}

std::vector<Value> iterate(const Value& value) {
  std::vector<Value> out;
  switch (value.kind()) {
    case Kind::kUndefined:
      break;
    case Kind::kString: {
      const Text& text = value.text_value();
      charge(text.size() + 1);
      out.reserve(value.as<StringObject>().num_characters);
      for (std::size_t i = 0; i < text.size();) {
        const std::size_t begin = i;
        read_utf8(text.text, i);
        out.push_back(Value::text(text.slice(begin, i), value.as<StringObject>().is_markup));
      }
      break;
    }
    case Kind::kList:
    case Kind::kTuple:
      charge(value.items().size() + 1);
      out = value.items();
      break;
    case Kind::kDict:
      charge(value.as<DictObject>().items.size() + 1);
      for (const auto& item : value.as<DictObject>().items) out.push_back(item.first);
      break;
    case Kind::kDictView: {
      const auto& view = value.as<DictViewObject>();
      charge(2 * view.dict.as<DictObject>().items.size() + 1);
      for (const auto& [key, item] : view.dict.as<DictObject>().items) {
        switch (view.what) {
          case DictViewObject::What::kItems:
            out.push_back(Value::tuple({key, item}));
            break;
          case DictViewObject::What::kKeys:
            out.push_back(key);
            break;
          case DictViewObject::What::kValues:
            out.push_back(item);
            break;
        }
      }
      break;
    }
    case Kind::kGenerator: {
      auto& generator = value.as<GeneratorObject>();
      out = std::move(generator.items);
      out.erase(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(generator.next));
      generator.items.clear();
      generator.next = 0;
      charge(out.size() + 1);
      break;
    }
    case Kind::kRange: {
      const auto& range = value.as<RangeObject>();
      charge(static_cast<std::size_t>(range.count) + 1);
      for (std::int64_t i = 0; i < range.count; ++i) {
        out.push_back(Value::integer(range.start + i * range.step));
      }
      break;
    }
    case Kind::kLoop: {  // walking a loop object takes what is left of the loop
      const auto& loop = value.as<LoopObject>();
      charge(loop.items.size() + 1);
      out.assign(loop.items.begin() + static_cast<std::ptrdiff_t>(loop.index + 1),
                 loop.items.end());
      break;
    }
    default:
      type_error("'" + type_name(value) + "' object is not iterable");
  }
  return out;
}

}  // namespace batchmill::jinja
