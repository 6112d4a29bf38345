// Reads typed fields of one JSON object that a user wrote. The first fault found is kept and makes
// every later read return its default, so callers read all fields in the order in which faults
// should be reported and look at the error once. Lives on one thread's stack.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "queue/batch_line.h"
#include "queue/wire.h"

namespace batchmill {

inline constexpr std::int64_t kMaxTokenId = 2147483647;  // of any vocabulary

// True if `value` is this string.
bool is_text(const Json& value, std::string_view text);

// A number that is an integer (4.0 is 4) and fits 64 bits.
std::optional<std::int64_t> as_integer(const Json& value);

// "\"hot\"", "true", "an array": what a value is, shortened, valid UTF-8.
std::string describe_value(const Json& value);

// True when a number in `value` or below it lies beyond the range of a double.
bool holds_infinity(const Json& value);

class FieldReader {
 public:
  // `path` is put before field names in messages ("body."). `object` and `error` must outlive this.
  FieldReader(const Json& object, std::string path, std::optional<LineError>* error)
      : object_(object), path_(std::move(path)), error_(error) {}

  bool failed() const { return error_->has_value(); }
  void fail(std::string_view code, std::string message);
  // "body.n must be WANTED, is FOUND".
  void fail_value(std::string_view name, std::string_view wanted, const Json& found);
  void fail_missing(std::string_view name);
  void fail_unsupported(std::string_view name, const Json& found);

  // The field, or null when it is absent, null or a fault was found before.
  const Json* find(std::string_view name) const;
  // The same, but its absence is a fault.
  const Json* require(std::string_view name);

  bool boolean(std::string_view name, bool absent);
  std::optional<std::int64_t> integer(std::string_view name, std::int64_t low,
                                      std::int64_t high = std::numeric_limits<std::int64_t>::max());
  // A number in [low, high], or in (low, high] with `low_is_out`.
  std::optional<double> number(std::string_view name, double low, double high,
                               bool low_is_out = false);
  std::optional<std::string> string(std::string_view name);

  std::string path(std::string_view name) const { return path_ + std::string(name); }
  const Json& object() const { return object_; }
  std::optional<LineError>* error() const { return error_; }  // for the reader of a field's fields

 private:
  const Json& object_;
  std::string path_;
  std::optional<LineError>* error_;
};

}  // namespace batchmill
