#include "engine/jinja_methods.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "engine/jinja_arguments.h"
#include "engine/jinja_ast.h"
#include "engine/jinja_operators.h"
#include "engine/jinja_runtime.h"

namespace batchmill::jinja {
namespace {

Value bind_method(const Value& self, std::string_view name, Method method) {
  auto object = std::make_shared<MethodObject>();
  object->self = self;
  object->name = name;
  object->method = method;
  return Value::object(Kind::kMethod, std::move(object));
}

template <DictViewObject::What kWhat>
Value dict_view(const Value& self, const Arguments& arguments) {
  arguments.bind("dict method", {});
  auto view = std::make_shared<DictViewObject>();
  view->dict = self;
  view->what = kWhat;
  return Value::object(Kind::kDictView, std::move(view));
}

Value dict_get(const Value& self, const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("get", {"key", "default"}, 1);
  hash_of(bound[0]);
  const Value* value = self.as<DictObject>().find(bound[0]);
  return value != nullptr ? *value : bound.get(1, Value::none());
}

Value copy(const Value& self, const Arguments& arguments) {
  arguments.bind("copy", {});
  return self;  // containers do not change
}

Value item_count(const Value& self, const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("count", {"value"}, 1);
  std::int64_t total = 0;
  for (const Value& item : self.items()) total += equal(item, bound[0]) ? 1 : 0;
  return Value::integer(total);
}

Value item_index(const Value& self, const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("index", {"value"}, 1);
  for (std::size_t i = 0; i < self.items().size(); ++i) {
    if (equal(self.items()[i], bound[0])) return Value::integer(static_cast<std::int64_t>(i));
  }
  value_error("the value is not in the list");
}

Value float_is_integer(const Value& self, const Arguments& arguments) {
  arguments.bind("is_integer", {});
  const double value = self.floating_value();
  return Value::boolean(std::isfinite(value) && std::trunc(value) == value);
}

Value loop_cycle(const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty()) type_error("no items for cycling given");
  return arguments.positional[self.as<LoopObject>().index % arguments.positional.size()];
}

Value loop_changed(const Value& self, const Arguments& arguments) {
  auto& loop = self.as<LoopObject>();
  const Value now = Value::tuple(arguments.positional);
  if (loop.last_changed && equal(*loop.last_changed, now)) return Value::boolean(false);
  Runtime::current()->keep(std::static_pointer_cast<LoopObject>(self.shared()));
  loop.last_changed = now;
  return Value::boolean(true);
}

Value cycler_next(const Value& self, const Arguments& arguments) {
  arguments.bind("next", {});
  auto& cycler = self.as<CyclerObject>();
  const Value current = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return current;
}

Value cycler_reset(const Value& self, const Arguments& arguments) {
  arguments.bind("reset", {});
  self.as<CyclerObject>().position = 0;
  return Value::none();
}

Method find_method(const Value& object, std::string_view name) {
  using What = DictViewObject::What;
  switch (object.kind()) {
    case Kind::kString:
      return find_string_method(name);
    case Kind::kDict:
      if (name == "items") return dict_view<What::kItems>;
      if (name == "keys") return dict_view<What::kKeys>;
      if (name == "values") return dict_view<What::kValues>;
      if (name == "get") return dict_get;
      if (name == "copy") return copy;
      break;
    case Kind::kList:
      if (name == "copy") return copy;
      [[fallthrough]];
    case Kind::kTuple:
      if (name == "count") return item_count;
      if (name == "index") return item_index;
      break;
    case Kind::kFloating:
      if (name == "is_integer") return float_is_integer;
      break;
    case Kind::kLoop:
      if (name == "cycle") return loop_cycle;
      if (name == "changed") return loop_changed;
      break;
    case Kind::kCycler:
      if (name == "next") return cycler_next;
      if (name == "reset") return cycler_reset;
      break;
    default:
      break;
  }
  return nullptr;
}

std::optional<Value> loop_attribute(const LoopObject& loop, std::string_view name) {
  const auto index = static_cast<std::int64_t>(loop.index);
  const auto length = static_cast<std::int64_t>(loop.items.size());
  if (name == "index") return Value::integer(index + 1);
  if (name == "index0") return Value::integer(index);
  if (name == "revindex") return Value::integer(length - index);
  if (name == "revindex0") return Value::integer(length - index - 1);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index + 1 == length);
  if (name == "length") return Value::integer(length);
  if (name == "depth") return Value::integer(loop.depth0 + 1);
  if (name == "depth0") return Value::integer(loop.depth0);
  if (name == "previtem") {
    if (loop.index == 0) return Value::undefined("there is no previous item");
    return loop.items[loop.index - 1];
  }
  if (name == "nextitem") {
    if (loop.index + 1 >= loop.items.size()) return Value::undefined("there is no next item");
    return loop.items[loop.index + 1];
  }
  return std::nullopt;
}

std::optional<Value> macro_attribute(const MacroNode& macro, std::string_view name) {
  if (name == "name") return Value::string(macro.name);
  if (name == "catch_kwargs") return Value::boolean(macro.uses_kwargs);
  if (name == "catch_varargs") return Value::boolean(macro.uses_varargs);
  if (name == "caller") return Value::boolean(macro.uses_caller);
  if (name != "arguments") return std::nullopt;
  std::vector<Value> names;
  for (const auto& parameter : macro.parameters) names.push_back(Value::string(parameter.name));
  return Value::tuple(std::move(names));
}

template <std::size_t kSize>
bool is_one_of(std::string_view name, const std::string_view (&names)[kSize]) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

std::optional<Value> find_attribute(const Value& object, const std::string& name) {
  if (const Method method = find_method(object, name)) return bind_method(object, name, method);
  switch (object.kind()) {
    case Kind::kLoop:
      return loop_attribute(object.as<LoopObject>(), name);
    case Kind::kMacro:
      return macro_attribute(*object.as<MacroObject>().node, name);
    case Kind::kTuple:
      if (!object.as<ListObject>().is_group) return std::nullopt;
      if (name == "grouper") return object.items()[0];
      if (name == "list") return object.items()[1];
      return std::nullopt;
    case Kind::kCycler:
      if (name == "current") {
        return object.as<CyclerObject>().items[object.as<CyclerObject>().position];
      }
      return std::nullopt;
    case Kind::kRange:
      if (name == "start") return Value::integer(object.as<RangeObject>().start);
      if (name == "stop") return Value::integer(object.as<RangeObject>().stop);
      if (name == "step") return Value::integer(object.as<RangeObject>().step);
      return std::nullopt;
    case Kind::kFloating:
      if (name == "real") return object;
      if (name == "imag") return Value::floating(0.0);
      return std::nullopt;
    case Kind::kBoolean:
    case Kind::kInteger:
    case Kind::kBigInteger:
      if (name == "real" || name == "numerator") return plus(object);
      if (name == "imag") return Value::integer(0);
      if (name == "denominator") return Value::integer(1);
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

bool is_object_attribute(std::string_view name) {
  static constexpr std::string_view kNames[] = {
      "__class__",   "__delattr__", "__dir__",           "__doc__",         "__eq__",
      "__format__",  "__ge__",      "__getattribute__",  "__getstate__",    "__gt__",
      "__hash__",    "__init__",    "__init_subclass__", "__le__",          "__lt__",
      "__ne__",      "__new__",     "__reduce__",        "__reduce_ex__",   "__repr__",
      "__setattr__", "__sizeof__",  "__str__",           "__subclasshook__"};
  return is_one_of(name, kNames);
}

bool is_mutator(const Value& object, std::string_view name) {
  static constexpr std::string_view kList[] = {"append", "clear",  "extend",  "insert",
                                               "pop",    "remove", "reverse", "sort"};
  static constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  if (object.is(Kind::kList)) return is_one_of(name, kList);
  return object.is(Kind::kDict) && is_one_of(name, kDict);
}

}  // namespace batchmill::jinja
