#include <cmath>

#include "engine/jinja_arguments.h"
#include "engine/jinja_format.h"
#include "engine/jinja_operators.h"
#include "engine/jinja_print.h"
#include "engine/jinja_runtime.h"

namespace batchmill::jinja {
namespace {

constexpr std::size_t kMaxIntegerBits = 1 << 17;

const char* sign_of(Operator op) {
  switch (op) {
    case Operator::kAdd:
      return "+";
    case Operator::kSubtract:
      return "-";
    case Operator::kMultiply:
      return "*";
    case Operator::kDivide:
      return "/";
    case Operator::kFloorDivide:
      return "//";
    case Operator::kModulo:
      return "%";
    default:
      return "** or pow()";
  }
}

[[noreturn]] void unsupported(Operator op, const Value& a, const Value& b) {
  if (a.is_undefined()) undefined_error(a);
  if (b.is_undefined()) undefined_error(b);
  if (op == Operator::kAdd && (a.is(Kind::kString) || a.is_sequence())) {
    type_error("can only concatenate " + type_name(a) + " (not \"" + type_name(b) + "\") to " +
               type_name(a));
  }
  type_error(std::string("unsupported operand type(s) for ") + sign_of(op) + ": '" + type_name(a) +
             "' and '" + type_name(b) + "'");
}

BigInt power(BigInt base, std::int64_t exponent) {
  if (base.bits() * static_cast<std::size_t>(std::min<std::int64_t>(exponent, 1 << 20)) >
      2 * kMaxIntegerBits) {
    const auto small = base.small();
    if (!small || *small < -1 || *small > 1) fail("limit", "an integer is too large");
    if (*small != -1) return base;
    exponent %= 2;
  }
  BigInt out(1);
  for (; exponent > 0; exponent >>= 1) {
    charge(base.bits() * out.bits() / 4096 + 1);
    if ((exponent & 1) != 0) out = out * base;
    if (exponent > 1) base = base * base;
  }
  return out;
}

Value integer_arithmetic(Operator op, const Value& a, const Value& b) {
  if (!a.is(Kind::kBigInteger) && !b.is(Kind::kBigInteger)) {
    const std::int64_t x = a.integer_value();
    const std::int64_t y = b.integer_value();
    std::int64_t out = 0;
    if (op == Operator::kAdd && !__builtin_add_overflow(x, y, &out)) return Value::integer(out);
    if (op == Operator::kSubtract && !__builtin_sub_overflow(x, y, &out)) {
      return Value::integer(out);
    }
    if (op == Operator::kMultiply && !__builtin_mul_overflow(x, y, &out)) {
      return Value::integer(out);
    }
  }
  const BigInt x = big_value(a);
  const BigInt y = big_value(b);
  charge((x.bits() + 64) * (y.bits() + 64) / 4096);
  switch (op) {
    case Operator::kAdd:
      return normalized(x + y);
    case Operator::kSubtract:
      return normalized(x - y);
    case Operator::kMultiply:
      if (x.bits() + y.bits() > kMaxIntegerBits) fail("limit", "an integer is too large");
      return normalized(x * y);
    case Operator::kDivide: {
      if (y.zero()) fail("ZeroDivisionError", "division by zero");
      const double out = x.to_double() / y.to_double();
      if (!std::isfinite(out)) {
        fail("OverflowError", "integer division result too large for a float");
      }
      return Value::floating(out);
    }
    case Operator::kFloorDivide:
    case Operator::kModulo: {
      if (y.zero()) {
        fail("ZeroDivisionError", op == Operator::kModulo ? "integer modulo by zero"
                                                          : "integer division or modulo by zero");
      }
      charge(x.bits() * (y.bits() + 64) / 512);
      const auto [quotient, rest] = BigInt::divide(x, y);
      return normalized(op == Operator::kFloorDivide ? quotient : rest);
    }
    default:
      break;
  }
  if (y.negative()) {
    if (x.zero()) fail("ZeroDivisionError", "0.0 cannot be raised to a negative power");
    return Value::floating(std::pow(double_value(a), double_value(b)));
  }
  const auto exponent = y.small();
  if (!exponent) {
    const auto base = x.small();
    if (!base || *base < -1 || *base > 1) fail("limit", "an integer is too large");
  }
  return normalized(
      power(x, exponent ? *exponent : 2 + (BigInt::divide(y, BigInt(2)).second.zero() ? 0 : 1)));
}

Value float_arithmetic(Operator op, double x, double y) {
  switch (op) {
    case Operator::kAdd:
      return Value::floating(x + y);
    case Operator::kSubtract:
      return Value::floating(x - y);
    case Operator::kMultiply:
      return Value::floating(x * y);
    case Operator::kDivide:
      if (y == 0.0) fail("ZeroDivisionError", "float division by zero");
      return Value::floating(x / y);
    case Operator::kPower: {
      if (x == 0.0 && y < 0) {
        fail("ZeroDivisionError", "0.0 cannot be raised to a negative power");
      }
      const double out = std::pow(x, y);
      if (std::isinf(out) && std::isfinite(x) && std::isfinite(y)) {
        fail("OverflowError", "(34, 'Numerical result out of range')");
      }
      if (std::isnan(out) && !std::isnan(x) && !std::isnan(y)) {
        value_error("complex numbers are not supported");
      }
      return Value::floating(out);
    }
    default:
      break;
  }
  if (y == 0.0) {
    fail("ZeroDivisionError",
         op == Operator::kModulo ? "float modulo" : "float floor division by zero");
  }
  double rest = std::fmod(x, y);
  double quotient = (x - rest) / y;
  if (rest != 0.0) {
    if ((y < 0) != (rest < 0)) {
      rest += y;
      quotient -= 1.0;
    }
  } else {
    rest = std::copysign(0.0, y);
  }
  if (op == Operator::kModulo) return Value::floating(rest);
  if (quotient == 0.0) return Value::floating(std::copysign(0.0, x / y));
  double whole = std::floor(quotient);
  if (quotient - whole > 0.5) whole += 1.0;
  return Value::floating(whole);
}

Value add_texts(const Value& a, const Value& b) {
  charge_bytes(a.string_value().size() + b.string_value().size());
  const bool a_markup = a.as<StringObject>().is_markup;
  const bool b_markup = b.as<StringObject>().is_markup;
  Text out;
  out.text.reserve(a.string_value().size() + b.string_value().size());
  out.append(b_markup && !a_markup ? escape_html(a.text_value()) : a.text_value());
  out.append(a_markup && !b_markup ? escape_html(b.text_value()) : b.text_value());
  return Value::text(std::move(out), a_markup || b_markup);
}

Value repeat(const Value& value, std::int64_t times) {
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(times, 0));
  if (value.is(Kind::kString)) {
    const Text& text = value.text_value();
    if (text.empty() || count == 0) return Value::text(Text(), value.as<StringObject>().is_markup);
    if (count > SIZE_MAX / text.size()) fail("limit", "a text is too long");
    charge_bytes(text.size() * count);
    charge(text.marked.size() * count);
    Text out;
    out.text.reserve(text.size() * count);
    for (std::size_t i = 0; i < count; ++i) out.append(text);
    return Value::text(std::move(out), value.as<StringObject>().is_markup);
  }
  const std::vector<Value>& items = value.items();
  if (!items.empty() && count > SIZE_MAX / items.size()) fail("limit", "a list is too long");
  charge(items.size() * count);
  std::vector<Value> out;
  if (!items.empty()) {
    out.reserve(items.size() * count);
    for (std::size_t i = 0; i < count; ++i) out.insert(out.end(), items.begin(), items.end());
  }
  return value.is(Kind::kList) ? Value::list(std::move(out)) : Value::tuple(std::move(out));
}

bool can_repeat(const Value& a, const Value& b) {
  return (a.is(Kind::kString) || a.is_sequence()) && (b.is_integer() || b.is(Kind::kBoolean));
}

std::int64_t repeat_count(const Value& value) {
  if (!value.is(Kind::kBigInteger)) return value.integer_value();
  if (big_value(value).negative()) return 0;
  fail("OverflowError", "cannot fit 'int' into an index-sized integer");
}

}  // namespace

Value arithmetic(Operator op, const Value& a, const Value& b) {
  charge();
  if (a.is_number() && b.is_number()) {
    if (a.is(Kind::kFloating) || b.is(Kind::kFloating)) {
      return float_arithmetic(op, double_value(a), double_value(b));
    }
    return integer_arithmetic(op, a, b);
  }
  if (op == Operator::kAdd) {
    if (a.is(Kind::kString) && b.is(Kind::kString)) return add_texts(a, b);
    if (a.is_sequence() && a.kind() == b.kind()) {
      charge(a.items().size() + b.items().size());
      std::vector<Value> out = a.items();
      out.insert(out.end(), b.items().begin(), b.items().end());
      return a.is(Kind::kList) ? Value::list(std::move(out)) : Value::tuple(std::move(out));
    }
  } else if (op == Operator::kMultiply) {
    if (can_repeat(a, b)) return repeat(a, repeat_count(b));
    if (can_repeat(b, a)) return repeat(b, repeat_count(a));
  } else if (op == Operator::kModulo && a.is(Kind::kString)) {
    return Value::text(format_percent(a, b), a.as<StringObject>().is_markup);
  }
  unsupported(op, a, b);
}

Value negate(const Value& value) {
  if (value.is_undefined()) undefined_error(value);
  if (value.is(Kind::kFloating)) return Value::floating(-value.floating_value());
  if (!value.is_number()) {
    type_error("bad operand type for unary -: '" + type_name(value) + "'");
  }
  return normalized(big_value(value).negated());
}

Value plus(const Value& value) {
  if (value.is_undefined()) undefined_error(value);
  if (!value.is_number()) {
    type_error("bad operand type for unary +: '" + type_name(value) + "'");
  }
  return value.is(Kind::kBoolean) ? Value::integer(value.integer_value()) : value;
}

Value normalized(const BigInt& value) {
  if (const auto small = value.small()) return Value::integer(*small);
  return Value::object(Kind::kBigInteger, std::make_shared<BigIntObject>(value));
}

BigInt big_value(const Value& value) {
  if (value.is(Kind::kBigInteger)) return value.as<BigIntObject>().value;
  return BigInt(value.integer_value());
}

double double_value(const Value& value) {
  if (value.is(Kind::kFloating)) return value.floating_value();
  if (!value.is(Kind::kBigInteger)) return static_cast<double>(value.integer_value());
  const double out = value.as<BigIntObject>().value.to_double();
  if (std::isinf(out)) fail("OverflowError", "int too large to convert to float");
  return out;
}

std::int64_t index_value(const Value& value) {
  if (value.is_undefined()) undefined_error(value);
  if (value.is(Kind::kInteger) || value.is(Kind::kBoolean)) return value.integer_value();
  if (value.is(Kind::kBigInteger)) {
    return big_value(value).negative() ? INT64_MIN / 4 : INT64_MAX / 4;
  }
  type_error("'" + type_name(value) + "' object cannot be interpreted as an integer");
}

}  // namespace batchmill::jinja
