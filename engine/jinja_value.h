// The values a Jinja template computes with: Python's None, bool, int, float, str, list, tuple,
// dict and "undefined", and what only templates have (macros, namespaces, loops, …). Copies are
// cheap: containers and strings are shared and do not change. Values given to a render may be
// shared by several threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/jinja_text.h"

namespace batchmill::jinja {

enum class Kind : std::uint8_t {
  kUndefined,
  kNone,
  kBoolean,
  kInteger,
  kBigInteger,  // outside 64 bits
  kFloating,
  kString,
  kList,
  kTuple,
  kDict,
  kDictView,  // what items(), keys() and values() give
  kGenerator,  // what lazy filters give: can be walked once
  kRange,
  kNamespace,
  kMacro,
  kFunction,
  kMethod,
  kLoop,
  kCycler,
  kJoiner,
};

// Base of what a value shares. Chains of any length are destroyed without recursion.
struct Object {
  virtual ~Object() = default;
};

class Value {
 public:
  Value() = default;  // undefined
  static Value none();
  static Value boolean(bool value);
  static Value integer(std::int64_t value);
  static Value integer(std::string_view decimal);  // "-"? digits, of any size
  static Value floating(double value);
  static Value string(std::string_view text);  // the template author's or the program's
  static Value marked_string(
      std::string_view text);  // from a message: never read as control tokens
  static Value list(std::vector<Value> items);
  // In this order; a key given again replaces the value of the first. Keys come from outside the
  // template, so they are marked.
  static Value dict(std::vector<std::pair<std::string, Value>> items);

  // What the interpreter makes.
  static Value text(Text text, bool is_markup = false);
  static Value tuple(std::vector<Value> items);
  static Value dict_of(std::vector<std::pair<Value, Value>> items);
  static Value object(Kind kind, std::shared_ptr<Object> object);
  // An undefined that explains itself when it is used; `is_unsafe`: using it is a security error.
  static Value undefined(std::string message, bool is_unsafe = false);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_integer() const { return kind_ == Kind::kInteger || kind_ == Kind::kBigInteger; }
  bool is_number() const { return is_integer() || is(Kind::kFloating) || is(Kind::kBoolean); }
  bool is_sequence() const { return is(Kind::kList) || is(Kind::kTuple); }

  std::int64_t integer_value() const { return integer_; }  // integer or boolean
  double floating_value() const { return floating_; }
  const Text& text_value() const;  // string
  const std::string& string_value() const { return text_value().text; }
  const std::vector<Value>& items() const;  // list or tuple
  const std::shared_ptr<Object>& shared() const { return object_; }
  template <typename T>
  T& as() const {
    return static_cast<T&>(*object_);
  }

 private:
  Kind kind_ = Kind::kUndefined;
  union {
    std::int64_t integer_ = 0;
    double floating_;
  };
  std::shared_ptr<Object> object_;
};

}  // namespace batchmill::jinja
