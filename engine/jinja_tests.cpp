#include <unordered_map>

#include "engine/jinja_builtins.h"
#include "engine/jinja_methods.h"
#include "engine/jinja_operators.h"
#include "engine/jinja_print.h"
#include "engine/jinja_runtime.h"

namespace batchmill::jinja {
namespace {

template <Kind... kKinds>
bool is_kind(const Value& input, const Arguments& arguments) {
  arguments.bind("test", {});
  return (input.is(kKinds) || ...);
}

template <Operator kOp>
bool compares(const Value& input, const Arguments& arguments) {
  return compare(kOp, input, arguments.bind("test", {"other"}, 1)[0]);
}

bool is_defined(const Value& input, const Arguments& arguments) {
  arguments.bind("defined", {});
  return !input.is_undefined();
}

bool is_truth(const Value& input, bool wanted) {
  return input.is(Kind::kBoolean) && truthy(input) == wanted;
}
bool is_true(const Value& input, const Arguments& arguments) {
  arguments.bind("true", {});
  return is_truth(input, true);
}
bool is_false(const Value& input, const Arguments& arguments) {
  arguments.bind("false", {});
  return is_truth(input, false);
}

bool is_number(const Value& input, const Arguments& arguments) {
  arguments.bind("number", {});
  return input.is_number();
}

bool is_sequence(const Value& input, const Arguments& arguments) {
  arguments.bind("sequence", {});
  return input.is(Kind::kString) || input.is_sequence() || input.is(Kind::kDict) ||
         input.is(Kind::kRange) || input.is_undefined();
}

bool can_iterate(const Value& input, const Arguments& arguments) {
  arguments.bind("iterable", {});
  return is_iterable(input);
}

bool is_callable(const Value& input, const Arguments& arguments) {
  arguments.bind("callable", {});
  switch (input.kind()) {
    case Kind::kMacro:
    case Kind::kFunction:
    case Kind::kMethod:
    case Kind::kJoiner:
    case Kind::kLoop:
    case Kind::kUndefined:
      return true;  // Undefined has __call__, which raises
    default:
      return false;
  }
}

bool has_remainder(const Value& input, const Value& divisor, std::int64_t wanted) {
  return equal(arithmetic(Operator::kModulo, input, divisor), Value::integer(wanted));
}
bool is_odd(const Value& input, const Arguments& arguments) {
  arguments.bind("odd", {});
  return has_remainder(input, Value::integer(2), 1);
}
bool is_even(const Value& input, const Arguments& arguments) {
  arguments.bind("even", {});
  return has_remainder(input, Value::integer(2), 0);
}
bool is_divisible(const Value& input, const Arguments& arguments) {
  return has_remainder(input, arguments.bind("divisibleby", {"num"}, 1)[0], 0);
}

bool is_same(const Value& input, const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("sameas", {"other"}, 1);
  const Value& other = bound[0];
  if (input.kind() != other.kind()) return false;
  if (input.shared() != nullptr) return input.shared() == other.shared();
  return equal(input, other);
}

template <bool kUpper>
bool is_cased(const Value& input, const Arguments& arguments) {
  const Method method = find_string_method(kUpper ? "isupper" : "islower");
  return truthy(method(Value::text(to_text(input)), arguments));
}

bool is_escaped(const Value& input, const Arguments& arguments) {
  arguments.bind("escaped", {});
  return input.is(Kind::kString) && input.as<StringObject>().is_markup;
}

bool is_filter(const Value& input, const Arguments& arguments) {
  arguments.bind("filter", {});
  return input.is(Kind::kString) && find_filter(input.string_value()) != nullptr;
}

bool is_test(const Value& input, const Arguments& arguments) {
  arguments.bind("test", {});
  return input.is(Kind::kString) && find_test(input.string_value()) != nullptr;
}

}  // namespace

Test find_test(std::string_view name) {
  static const std::unordered_map<std::string_view, Test> kTests = {
      {"!=", compares<Operator::kNotEqual>},
      {"<", compares<Operator::kLess>},
      {"<=", compares<Operator::kLessEqual>},
      {"==", compares<Operator::kEqual>},
      {">", compares<Operator::kGreater>},
      {">=", compares<Operator::kGreaterEqual>},
      {"boolean", is_kind<Kind::kBoolean>},
      {"callable", is_callable},
      {"defined", is_defined},
      {"divisibleby", is_divisible},
      {"eq", compares<Operator::kEqual>},
      {"equalto", compares<Operator::kEqual>},
      {"escaped", is_escaped},
      {"even", is_even},
      {"false", is_false},
      {"filter", is_filter},
      {"float", is_kind<Kind::kFloating>},
      {"ge", compares<Operator::kGreaterEqual>},
      {"greaterthan", compares<Operator::kGreater>},
      {"gt", compares<Operator::kGreater>},
      {"in", compares<Operator::kIn>},
      {"integer", is_kind<Kind::kInteger, Kind::kBigInteger>},
      {"iterable", can_iterate},
      {"le", compares<Operator::kLessEqual>},
      {"lessthan", compares<Operator::kLess>},
      {"lower", is_cased<false>},
      {"lt", compares<Operator::kLess>},
      {"mapping", is_kind<Kind::kDict>},
      {"ne", compares<Operator::kNotEqual>},
      {"none", is_kind<Kind::kNone>},
      {"number", is_number},
      {"odd", is_odd},
      {"sameas", is_same},
      {"sequence", is_sequence},
      {"string", is_kind<Kind::kString>},
      {"test", is_test},
      {"true", is_true},
      {"undefined", is_kind<Kind::kUndefined>},
      {"upper", is_cased<true>},
  };
  const auto it = kTests.find(name);
  return it == kTests.end() ? nullptr : it->second;
}

}  // namespace batchmill::jinja
