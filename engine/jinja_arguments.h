// The arguments of a call, and their binding to parameter names. Values; used inside one render.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/jinja_value.h"

namespace batchmill::jinja {

// Arguments in the order of a function's parameters.
class BoundArguments {
 public:
  bool has(std::size_t i) const { return values_[i].has_value(); }
  const Value& operator[](std::size_t i) const { return *values_[i]; }
  Value get(std::size_t i, Value fallback) const {
    return has(i) ? *values_[i] : std::move(fallback);
  }
  // Throw TypeError if the argument has another type. None is the fallback where `or_none`.
  std::int64_t integer(std::size_t i, std::int64_t fallback) const;
  Text text(std::size_t i, std::string_view fallback) const;
  bool truth(std::size_t i, bool fallback) const;

 private:
  friend struct Arguments;
  std::vector<std::optional<Value>> values_;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // Throws TypeError when there are too many, an unknown name, or less than `required`.
  BoundArguments bind(const char* function, std::initializer_list<const char*> parameters,
                      std::size_t required = 0) const;
  const Value* find(std::string_view name) const;
};

}  // namespace batchmill::jinja
