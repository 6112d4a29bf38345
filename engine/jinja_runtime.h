// What one render may use and what it holds on to. One Runtime lives on the stack of a render and
// is reached through the thread it runs on; values are walked without passing it around.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/jinja_objects.h"
#include "engine/template_error.h"

namespace batchmill::jinja {

class Runtime {
 public:
  Runtime(const TemplateLimits& limits, std::int64_t now_s);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  static Runtime* current() { return current_; }  // null outside a render
  std::int64_t now_s() const { return now_s_; }

  // Objects that may refer to themselves; they are emptied when the render ends.
  void keep(std::shared_ptr<NamespaceObject> object);
  void keep(std::shared_ptr<Scope> object);
  void keep(std::shared_ptr<LoopObject> object);

 private:
  friend void charge(std::size_t steps);
  friend void check_size(std::size_t bytes);
  friend class Nested;
  friend class NestedCall;

  static thread_local Runtime* current_;
  Runtime* outer_;
  TemplateLimits limits_;
  std::int64_t steps_ = 0;
  std::int32_t nesting_ = 0;
  std::int32_t calls_ = 0;
  std::int64_t now_s_;
  std::vector<std::shared_ptr<NamespaceObject>> namespaces_;
  std::vector<std::shared_ptr<Scope>> scopes_;
  std::vector<std::shared_ptr<LoopObject>> loops_;
};

// Counts work; throws TemplateError of kind "limit". Outside a render they do nothing.
void charge(std::size_t steps = 1);
void charge_bytes(std::size_t bytes);  // a text of this size is about to be made or walked
void check_size(std::size_t bytes);  // a text may be so long

// One level deeper in an expression, a body or a value, as long as it lives.
class Nested {
 public:
  Nested();
  ~Nested();
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;
};

// One call of a macro or of a recursive loop, as long as it lives.
class NestedCall {
 public:
  NestedCall();
  ~NestedCall();
  NestedCall(const NestedCall&) = delete;
  NestedCall& operator=(const NestedCall&) = delete;
};

[[noreturn]] void fail(const char* kind, const std::string& message);
[[noreturn]] void type_error(const std::string& message);
[[noreturn]] void value_error(const std::string& message);

}  // namespace batchmill::jinja
