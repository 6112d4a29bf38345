#include "engine/jinja_runtime.h"

namespace batchmill::jinja {
namespace {

constexpr std::size_t kBytesPerStep = 32;
// Levels of nesting that one level of TemplateLimits::max_depth stands for: a call passes through
// several bodies and expressions.
constexpr std::int32_t kNestingPerDepth = 10;
// Steps that an object costs that is kept to the end of the render.
constexpr std::size_t kKeepSteps = 16;

}  // namespace

thread_local Runtime* Runtime::current_ = nullptr;

Runtime::Runtime(const TemplateLimits& limits, std::int64_t now_s)
    : outer_(current_), limits_(limits), now_s_(now_s) {
  current_ = this;
}

Runtime::~Runtime() {
  for (const auto& object : namespaces_) object->clear();
  for (const auto& object : scopes_) object->clear();
  for (const auto& object : loops_) object->clear();
  current_ = outer_;
}

void Runtime::keep(std::shared_ptr<NamespaceObject> object) {
  charge(kKeepSteps);
  namespaces_.push_back(std::move(object));
}

void Runtime::keep(std::shared_ptr<Scope> object) {
  if (!scopes_.empty() && scopes_.back() == object) return;
  charge(kKeepSteps);
  scopes_.push_back(std::move(object));
}

void Runtime::keep(std::shared_ptr<LoopObject> object) {
  if (!loops_.empty() && loops_.back() == object) return;
  charge(kKeepSteps);
  loops_.push_back(std::move(object));
}

void charge(std::size_t steps) {
  Runtime* runtime = Runtime::current_;
  if (runtime == nullptr) return;
  const auto left = static_cast<std::size_t>(runtime->limits_.max_steps - runtime->steps_);
  if (steps > left) {
    runtime->steps_ = runtime->limits_.max_steps;
    fail("limit", "the template takes too many steps");
  }
  runtime->steps_ += static_cast<std::int64_t>(steps);
}

void check_size(std::size_t bytes) {
  const Runtime* runtime = Runtime::current_;
  if (runtime == nullptr) return;
  if (bytes > static_cast<std::size_t>(runtime->limits_.max_output_bytes)) {
    fail("limit", "the template makes a text that is too long");
  }
}

void charge_bytes(std::size_t bytes) {
  check_size(bytes);
  charge(bytes / kBytesPerStep);
}

Nested::Nested() {
  Runtime* runtime = Runtime::current_;
  if (runtime == nullptr) return;
  if (runtime->nesting_ >= runtime->limits_.max_depth * kNestingPerDepth) {
    fail("limit", "the template nests too deep");
  }
  ++runtime->nesting_;
}

Nested::~Nested() {
  if (Runtime::current_ != nullptr) --Runtime::current_->nesting_;
}

NestedCall::NestedCall() {
  Runtime* runtime = Runtime::current_;
  if (runtime->calls_ >= runtime->limits_.max_depth) {
    fail("limit", "the template's calls nest too deep");
  }
  ++runtime->calls_;
}

NestedCall::~NestedCall() { --Runtime::current_->calls_; }

void fail(const char* kind, const std::string& message) { throw TemplateError(kind, message); }
void type_error(const std::string& message) { fail("TypeError", message); }
void value_error(const std::string& message) { fail("ValueError", message); }

}  // namespace batchmill::jinja
