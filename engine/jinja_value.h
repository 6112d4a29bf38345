// The values a Jinja template computes with: Python's None, bool, int, float, str, list, tuple,
// dict and "undefined". Copies are cheap: containers and strings are shared.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace batchmill::jinja {

// Interface sketch that other parts rely on; the interpreter adds what it needs.
class Value {
 public:
  Value();  // undefined
  static Value none();
  static Value boolean(bool value);
  static Value integer(std::int64_t value);
  static Value floating(double value);
  static Value string(std::string_view text);  // the template author's or the program's
  static Value marked_string(
      std::string_view text);  // from a message: never read as control tokens
  static Value list(std::vector<Value> items);
  static Value dict(std::vector<std::pair<std::string, Value>> items);  // in this order

 private:
  struct Data;
  std::shared_ptr<const Data> data_;
};

}  // namespace batchmill::jinja
