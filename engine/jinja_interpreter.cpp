#include "engine/jinja_interpreter.h"

#include "engine/jinja_builtins.h"
#include "engine/jinja_operators.h"
#include "engine/jinja_print.h"

namespace batchmill::jinja {
namespace {

// Puts a value back when a scope of the code ends, also by an exception.
template <typename T>
class Restore {
 public:
  Restore(T& place, T value) : place_(place), old_(std::move(place)) { place = std::move(value); }
  ~Restore() { place_ = std::move(old_); }
  Restore(const Restore&) = delete;
  Restore& operator=(const Restore&) = delete;

 private:
  T& place_;
  T old_;
};

}  // namespace

Text Interpreter::run() {
  Text out;
  scope_ = std::make_shared<Scope>(nullptr);
  out_ = &out;
  execute(tree_.body);
  out_ = nullptr;
  return out;
}

void Interpreter::write(const Text& text) {
  charge(text.size() / 32);
  check_size(out_->size() + text.size());
  out_->append(text);
}

void Interpreter::print(const Value& value) {
  if (value.is_undefined()) return;
  if (value.is(Kind::kString)) {
    write(value.text_value());
  } else {
    write(to_text(value));
  }
}

Interpreter::Flow Interpreter::execute(const Body& body) {
  const Nested nested;
  for (const auto& statement : body) {
    const Flow flow = execute(*statement);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const Statement& statement) {
  charge();
  line_ = statement.line;
  switch (statement.kind) {
    case StatementKind::kData:
      write(Text(static_cast<const DataNode&>(statement).text));
      break;
    case StatementKind::kPrint:
      for (const auto& expression : static_cast<const PrintNode&>(statement).expressions) {
        print(evaluate(*expression));
      }
      break;
    case StatementKind::kFor:
      return execute_for(static_cast<const ForNode&>(statement));
    case StatementKind::kIf:
      return execute_if(static_cast<const IfNode&>(statement));
    case StatementKind::kSet: {
      const auto& node = static_cast<const SetNode&>(statement);
      assign(node.target, evaluate(*node.value));
      break;
    }
    case StatementKind::kSetBlock: {
      const auto& node = static_cast<const SetBlockNode&>(statement);
      Value value = Value::text(captured(node.body, std::make_shared<Scope>(scope_)));
      if (node.filter != nullptr) {
        value = evaluate_filter(static_cast<const FilterNode&>(*node.filter), &value);
      }
      assign(node.target, value);
      break;
    }
    case StatementKind::kMacro: {
      const auto& node = static_cast<const MacroNode&>(statement);
      scope_->set(node.symbol, make_macro(node));
      break;
    }
    case StatementKind::kCallBlock:
      execute_call_block(static_cast<const CallBlockNode&>(statement));
      break;
    case StatementKind::kFilterBlock: {
      const auto& node = static_cast<const FilterBlockNode&>(statement);
      const Value text = Value::text(captured(node.body, std::make_shared<Scope>(scope_)));
      print(evaluate_filter(static_cast<const FilterNode&>(*node.filter), &text));
      break;
    }
    case StatementKind::kWith:
      execute_with(static_cast<const WithNode&>(statement));
      break;
    case StatementKind::kBlock: {
      const Restore scope(scope_, std::make_shared<Scope>(scope_));
      return execute(static_cast<const BlockNode&>(statement).body);
    }
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
    case StatementKind::kLoad:
      type_error("no loader for this environment specified");
  }
  return Flow::kNext;
}

Text Interpreter::captured(const Body& body, const std::shared_ptr<Scope>& scope) {
  Text text;
  const Restore output(out_, &text);
  const Restore inner(scope_, scope);
  execute(body);
  return text;
}

Interpreter::Flow Interpreter::execute_if(const IfNode& node) {
  for (const auto& [test, body] : node.branches) {
    line_ = test->line;
    if (truthy(evaluate(*test))) return execute(body);
  }
  return execute(node.otherwise);
}

void Interpreter::execute_with(const WithNode& node) {
  std::vector<Value> values;
  for (const auto& [target, expression] : node.values) values.push_back(evaluate(*expression));
  const Restore scope(scope_, std::make_shared<Scope>(scope_));
  for (std::size_t i = 0; i < values.size(); ++i) assign(node.values[i].first, values[i]);
  execute(node.body);
}

void Interpreter::execute_call_block(const CallBlockNode& node) {
  const auto& call_node = static_cast<const CallNode&>(*node.call);
  const Value callee = evaluate(*call_node.callee);
  Arguments arguments = evaluate_arguments(call_node.arguments);
  arguments.named.emplace_back("caller", make_macro(*node.caller));
  print(call(callee, std::move(arguments)));
}

Interpreter::Flow Interpreter::execute_for(const ForNode& node) {
  const Value iterable = evaluate(*node.iterable);
  bool is_broken = false;
  if (!node.is_recursive) {
    run_loop(node, iterable, scope_, 0, is_broken);
  } else {
    write(run_loop(node, iterable, scope_, 0, is_broken));
  }
  return Flow::kNext;
}

// A recursive loop gives its text, others write it at once and give none.
Text Interpreter::run_loop(const ForNode& node, const Value& iterable, std::shared_ptr<Scope> scope,
                           std::int32_t depth0, bool& is_broken) {
  Text text;
  const Restore output(out_, node.is_recursive ? &text : out_);
  const Restore outer(scope_, scope);
  auto loop = std::make_shared<LoopObject>();
  loop->depth0 = depth0;
  if (node.is_recursive) {
    loop->recursive = &node;
    loop->scope = scope;
    Runtime::current()->keep(scope);
  }
  loop->items = iterate(iterable);
  if (node.test != nullptr) {
    std::vector<Value> kept;
    for (Value& item : loop->items) {
      const Restore inner(scope_, std::make_shared<Scope>(scope));
      assign(node.target, item);
      if (truthy(evaluate(*node.test))) kept.push_back(std::move(item));
    }
    loop->items = std::move(kept);
  }
  const Value loop_value = Value::object(Kind::kLoop, loop);
  std::shared_ptr<Scope> inner;
  for (loop->index = 0; loop->index < loop->items.size() && !is_broken; ++loop->index) {
    charge();
    if (inner != nullptr && inner.use_count() == 1) {
      inner->clear();
    } else {
      inner = std::make_shared<Scope>(scope);
    }
    scope_ = inner;
    inner->set(kLoopSymbol, loop_value);
    assign(node.target, loop->items[loop->index]);
    is_broken = execute(node.body) == Flow::kBreak;
    scope_ = scope;
  }
  if (loop->items.empty()) {
    const Restore fresh(scope_, std::make_shared<Scope>(scope));
    execute(node.otherwise);
  }
  return text;
}

void Interpreter::assign(const Target& target, const Value& value) {
  if (target.is_tuple) {
    if (value.is_undefined()) {
      value_error("not enough values to unpack (expected " + std::to_string(target.parts.size()) +
                  ", got 0)");
    }
    if (!is_iterable(value))
      type_error("cannot unpack non-iterable " + type_name(value) + " object");
    const std::vector<Value> items = iterate(value);
    if (items.size() != target.parts.size()) {
      value_error(std::string(items.size() < target.parts.size() ? "not enough" : "too many") +
                  " values to unpack (expected " + std::to_string(target.parts.size()) + ")");
    }
    for (std::size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
    return;
  }
  if (!target.attribute) {
    scope_->set(target.symbol, value);
    return;
  }
  const Value object = evaluate_name(target.symbol);
  if (!object.is(Kind::kNamespace)) {
    fail("runtime", "cannot assign attribute on non-namespace object");
  }
  auto& attributes = object.as<NamespaceObject>().attributes;
  for (auto& [name, old] : attributes) {
    if (name == *target.attribute) {
      old = value;
      return;
    }
  }
  attributes.emplace_back(*target.attribute, value);
}

Value Interpreter::make_macro(const MacroNode& node) {
  auto macro = std::make_shared<MacroObject>();
  macro->node = &node;
  macro->scope = scope_;
  Runtime::current()->keep(scope_);
  return Value::object(Kind::kMacro, std::move(macro));
}

Value Interpreter::call(const Value& callee, Arguments arguments) {
  charge();
  switch (callee.kind()) {
    case Kind::kUndefined:
      undefined_error(callee);
    case Kind::kFunction:
      return callee.as<FunctionObject>().function(arguments);
    case Kind::kMethod: {
      const auto& method = callee.as<MethodObject>();
      return method.method(method.self, arguments);
    }
    case Kind::kMacro:
      return call_macro(callee.as<MacroObject>(), std::move(arguments));
    case Kind::kJoiner: {
      auto& joiner = callee.as<JoinerObject>();
      arguments.bind("__call__", {});
      if (joiner.used) return joiner.separator;
      joiner.used = true;
      return Value::string("");
    }
    case Kind::kLoop: {
      const auto& loop = callee.as<LoopObject>();
      if (loop.recursive == nullptr) {
        type_error("The loop must have the 'recursive' marker to be called recursively.");
      }
      const BoundArguments bound = arguments.bind("loop", {"iterable"}, 1);
      const NestedCall nested_call;
      const Nested nested;
      bool is_broken = false;
      return Value::text(
          run_loop(*loop.recursive, bound[0], loop.scope, loop.depth0 + 1, is_broken));
    }
    default:
      type_error("'" + type_name(callee) + "' object is not callable");
  }
}

Value Interpreter::call_macro(const MacroObject& macro, Arguments arguments) {
  const NestedCall nested_call;
  const Nested nested;
  const MacroNode& node = *macro.node;
  const Restore inner(scope_, std::make_shared<Scope>(macro.scope));
  std::vector<std::pair<Value, Value>> more_named;
  std::vector<std::optional<Value>> given(node.parameters.size());
  std::optional<Value> caller;
  for (std::size_t i = 0; i < std::min(arguments.positional.size(), given.size()); ++i) {
    given[i] = arguments.positional[i];
  }
  for (auto& [name, value] : arguments.named) {
    std::size_t i = 0;
    while (i < given.size() && node.parameters[i].name != name) ++i;
    if (i < given.size()) {
      if (given[i]) {
        type_error("macro '" + node.name + "' got multiple values for argument '" + name + "'");
      }
      given[i] = std::move(value);
    } else if (name == "caller" && node.uses_caller) {
      caller = std::move(value);
    } else if (node.uses_kwargs) {
      more_named.emplace_back(Value::string(name), std::move(value));
    } else if (name == "caller") {
      type_error("macro '" + node.name + "' was invoked with a caller it does not use");
    } else {
      type_error("macro '" + node.name + "' takes no keyword argument '" + name + "'");
    }
  }
  std::vector<Value> more_positional;
  for (std::size_t i = given.size(); i < arguments.positional.size(); ++i) {
    if (!node.uses_varargs) {
      type_error("macro '" + node.name + "' takes not more than " + std::to_string(given.size()) +
                 " argument(s)");
    }
    more_positional.push_back(std::move(arguments.positional[i]));
  }
  bool has_caller_parameter = false;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const MacroNode::Parameter& parameter = node.parameters[i];
    has_caller_parameter = has_caller_parameter || parameter.symbol == kCallerSymbol;
    if (!given[i]) {
      given[i] = parameter.fallback != nullptr
                     ? evaluate(*parameter.fallback)
                     : Value::undefined("parameter '" + parameter.name + "' was not provided");
    }
    scope_->set(parameter.symbol, std::move(*given[i]));
  }
  if (node.uses_caller && !has_caller_parameter) {
    scope_->set(kCallerSymbol, caller ? *caller : Value::undefined("No caller defined"));
  }
  if (node.uses_varargs) scope_->set(kVarargsSymbol, Value::tuple(std::move(more_positional)));
  if (node.uses_kwargs) scope_->set(kKwargsSymbol, Value::dict_of(std::move(more_named)));
  const std::shared_ptr<Scope> scope = scope_;
  return Value::text(captured(node.body, scope));
}

}  // namespace batchmill::jinja
