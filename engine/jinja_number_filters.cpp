#include <charconv>
#include <cmath>
#include <unordered_map>

#include "engine/jinja_builtins.h"
#include "engine/jinja_operators.h"
#include "engine/jinja_print.h"
#include "engine/jinja_runtime.h"
#include "engine/jinja_strings.h"

namespace batchmill::jinja {
namespace {

// Python's float(text); nothing if that fails.
std::optional<double> parse_float(const Text& text) {
  std::string s = strip(text, Side::kBoth, nullptr).text;
  std::erase(s, '_');
  const bool has_sign = s.starts_with('+') || s.starts_with('-');
  const bool is_negative = s.starts_with('-');
  s = s.substr(has_sign ? 1 : 0);
  if (s.empty() || s[0] == '+' || s[0] == '-') return std::nullopt;
  double value = 0;
  const auto result = std::from_chars(s.data(), s.data() + s.size(), value);
  if (result.ptr != s.data() + s.size() || result.ec == std::errc::invalid_argument) {
    return std::nullopt;
  }
  if (result.ec == std::errc::result_out_of_range) {
    value = s.find("e-") != std::string::npos || s.find("E-") != std::string::npos ? 0.0 : HUGE_VAL;
  }
  return is_negative ? -value : value;
}

// Python's int(text, base); nothing if that fails.
std::optional<Value> parse_integer(const Text& text, std::int64_t base) {
  std::string s = strip(text, Side::kBoth, nullptr).text;
  const bool is_negative = s.starts_with('-');
  if (is_negative || s.starts_with('+')) s.erase(0, 1);
  if (s.size() > 1 && s[0] == '0' && (base == 16 || base == 8 || base == 2)) {
    const char prefix = static_cast<char>(s[1] | 32);
    if ((base == 16 && prefix == 'x') || (base == 8 && prefix == 'o') ||
        (base == 2 && prefix == 'b')) {
      s.erase(0, 2);
    }
  }
  if (s.empty() || s.front() == '_' || s.back() == '_' || s.find("__") != std::string::npos) {
    return std::nullopt;
  }
  std::erase(s, '_');
  for (const char c : s) {
    const bool is_letter = (c | 32) >= 'a' && (c | 32) <= 'z';
    if (!is_letter && (c < '0' || c > '9')) return std::nullopt;
    if ((is_letter ? (c | 32) - 'a' + 10 : c - '0') >= base) return std::nullopt;
  }
  charge(s.size() * s.size() / 1024);
  const BigInt magnitude = BigInt::from_digits(s, static_cast<unsigned>(base));
  return normalized(is_negative ? magnitude.negated() : magnitude);
}

std::optional<Value> truncated(double value) {
  if (!std::isfinite(value)) return std::nullopt;
  return normalized(BigInt::from_double(value));
}

Value to_integer(const Value& input, const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("int", {"default", "base"});
  const Value fallback = bound.get(0, Value::integer(0));
  if (input.is_undefined()) undefined_error(input);
  if (input.is_integer()) return input;
  if (input.is(Kind::kBoolean)) return plus(input);
  if (input.is(Kind::kFloating)) return truncated(input.floating_value()).value_or(fallback);
  if (!input.is(Kind::kString)) return fallback;
  const std::int64_t base = bound.integer(1, 10);
  if (base < 2 || base > 36) return fallback;
  if (auto value = parse_integer(input.text_value(), base)) return *value;
  if (const auto value = parse_float(input.text_value())) {
    return truncated(*value).value_or(fallback);
  }
  return fallback;
}

Value to_float(const Value& input, const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("float", {"default"});
  const Value fallback = bound.get(0, Value::floating(0.0));
  if (input.is_undefined()) undefined_error(input);
  if (input.is_number()) return Value::floating(double_value(input));
  if (!input.is(Kind::kString)) return fallback;
  const auto value = parse_float(input.text_value());
  return value ? Value::floating(*value) : fallback;
}

Value absolute(const Value& input, const Arguments& arguments) {
  arguments.bind("abs", {});
  if (input.is_undefined()) undefined_error(input);
  if (input.is(Kind::kFloating)) return Value::floating(std::fabs(input.floating_value()));
  if (!input.is_number()) type_error("bad operand type for abs(): '" + type_name(input) + "'");
  const BigInt value = big_value(input);
  return normalized(value.negative() ? value.negated() : value);
}

double rounded(double value, std::int64_t precision) {
  if (!std::isfinite(value) || precision > 330) return value;
  if (precision >= 0) {
    char buffer[700];
    const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed,
                                   static_cast<int>(precision));
    double out = 0;
    std::from_chars(buffer, end.ptr, out);
    return out;
  }
  if (precision < -310) return 0.0 * value;
  const double scale = std::pow(10.0, static_cast<double>(-precision));
  return std::nearbyint(value / scale) * scale;
}

Value round_filter(const Value& input, const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("round", {"precision", "method"});
  const std::int64_t precision = bound.integer(0, 0);
  const std::string method = bound.text(1, "common").text;
  if (method != "common" && method != "ceil" && method != "floor") {
    fail("runtime", "method must be common, ceil or floor");
  }
  if (input.is_undefined()) undefined_error(input);
  if (!input.is_number()) {
    type_error("type " + type_name(input) + " doesn't define __round__ method");
  }
  if (method == "common") {
    if (input.is(Kind::kFloating)) {
      return Value::floating(rounded(input.floating_value(), precision));
    }
    if (precision >= 0) return plus(input);
    if (precision < -4000) return Value::integer(0);
    // Half to even, in units of 10^-precision.
    const Value unit = arithmetic(Operator::kPower, Value::integer(10), Value::integer(-precision));
    const Value rest = arithmetic(Operator::kModulo, input, unit);
    Value down = arithmetic(Operator::kSubtract, input, rest);
    const Value twice = arithmetic(Operator::kMultiply, rest, Value::integer(2));
    const bool is_odd = truthy(arithmetic(
        Operator::kModulo, arithmetic(Operator::kFloorDivide, down, unit), Value::integer(2)));
    const bool goes_up = less(unit, twice) || (equal(unit, twice) && is_odd);
    return goes_up ? arithmetic(Operator::kAdd, down, unit) : down;
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = double_value(input) * scale;
  const double whole = method == "ceil" ? std::ceil(scaled) : std::floor(scaled);
  if (!std::isfinite(whole)) fail("OverflowError", "cannot convert float infinity to integer");
  return Value::floating(whole / scale);
}

}  // namespace

Filter find_number_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, Filter> kFilters = {
      {"abs", absolute}, {"float", to_float}, {"int", to_integer}, {"round", round_filter}};
  const auto it = kFilters.find(name);
  return it == kFilters.end() ? nullptr : it->second;
}

}  // namespace batchmill::jinja
