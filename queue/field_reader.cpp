#include "queue/field_reader.h"

#include <fmt/core.h>

#include <cmath>
#include <utility>

#include "queue/json_reader.h"

namespace batchmill {
namespace {

constexpr std::size_t kQuotedBytes = 60;  // of a value shown in a message
constexpr std::size_t kPathBytes = 120;  // of a field's name shown in a message

std::string range_text(std::int64_t low, std::int64_t high) {
  if (high == std::numeric_limits<std::int64_t>::max()) {
    return fmt::format("an integer of at least {}", low);
  }
  return fmt::format("an integer in [{}, {}]", low, high);
}

}  // namespace

std::optional<std::int64_t> as_integer(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return std::nullopt;
    }
    return static_cast<std::int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const auto number = value.get<double>();
  constexpr double kLimit = 9223372036854775808.0;  // 2^63
  if (!(number >= -kLimit && number < kLimit) || std::trunc(number) != number) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

bool is_text(const Json& value, std::string_view text) {
  return value.is_string() && value.get_ref<const std::string&>() == text;
}

std::string describe_value(const Json& value) {
  switch (value.type()) {
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return value.empty() ? "an empty array" : "an array";
    case Json::value_t::string: {
      const auto& text = value.get_ref<const std::string&>();
      const std::string_view shown = utf8_prefix(text, kQuotedBytes);
      const std::string quoted = Json(std::string(shown)).dump();
      return shown.size() == text.size() ? quoted
                                         : fmt::format("{}… ({} bytes)", quoted, text.size());
    }
    case Json::value_t::number_float: {
      const auto number = value.get<double>();
      if (std::isinf(number)) return "a number beyond the range of 64-bit floats";
      return value.dump();
    }
    default:
      return value.dump();
  }
}

bool holds_infinity(const Json& value) {
  if (value.is_number_float()) return std::isinf(value.get<double>());
  if (!value.is_structured()) return false;
  for (const Json& item : value) {
    if (holds_infinity(item)) return true;
  }
  return false;
}

void FieldReader::fail(std::string_view code, std::string message) {
  if (!failed()) *error_ = LineError{std::string(code), std::move(message)};
}

void FieldReader::fail_value(std::string_view name, std::string_view wanted, const Json& found) {
  fail("invalid_value", fmt::format("{} must be {}, is {}", utf8_prefix(path(name), kPathBytes),
                                    wanted, describe_value(found)));
}

void FieldReader::fail_missing(std::string_view name) {
  fail("missing_field", fmt::format("{} is missing", utf8_prefix(path(name), kPathBytes)));
}

void FieldReader::fail_unsupported(std::string_view name, const Json& found) {
  fail("unsupported_parameter",
       fmt::format("{} is not supported with the value it has: {}",
                   utf8_prefix(path(name), kPathBytes), describe_value(found)));
}

const Json* FieldReader::find(std::string_view name) const {
  if (failed()) return nullptr;
  // Compared by hand: the object's own search would build a std::string for every name.
  for (const auto& [key, value] : object_.get_ref<const Json::object_t&>()) {
    if (key == name) return value.is_null() ? nullptr : &value;
  }
  return nullptr;
}

const Json* FieldReader::require(std::string_view name) {
  const Json* const value = find(name);
  if (value == nullptr) fail_missing(name);
  return value;
}

bool FieldReader::boolean(std::string_view name, bool absent) {
  const Json* const value = find(name);
  if (value == nullptr) return absent;
  if (!value->is_boolean()) {
    fail_value(name, "true or false", *value);
    return absent;
  }
  return value->get<bool>();
}

std::optional<std::int64_t> FieldReader::integer(std::string_view name, std::int64_t low,
                                                 std::int64_t high) {
  const Json* const value = find(name);
  if (value == nullptr) return std::nullopt;
  const std::optional<std::int64_t> number = as_integer(*value);
  if (!number || *number < low || *number > high) {
    fail_value(name, range_text(low, high), *value);
    return std::nullopt;
  }
  return number;
}

std::optional<double> FieldReader::number(std::string_view name, double low, double high,
                                          bool low_is_out) {
  const Json* const value = find(name);
  if (value == nullptr) return std::nullopt;
  const double number = value->is_number() ? value->get<double>() : 0.0;
  const bool in_range = number <= high && (low_is_out ? number > low : number >= low);
  if (!value->is_number() || !in_range || std::isinf(number)) {
    const std::string wanted =
        std::isinf(high) ? fmt::format("a number {} {}", low_is_out ? "above" : "of at least", low)
                         : fmt::format("a number in {}{}, {}]", low_is_out ? '(' : '[', low, high);
    fail_value(name, wanted, *value);
    return std::nullopt;
  }
  return number;
}

std::optional<std::string> FieldReader::string(std::string_view name) {
  const Json* const value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    fail_value(name, "a string", *value);
    return std::nullopt;
  }
  return value->get<std::string>();
}

}  // namespace batchmill
