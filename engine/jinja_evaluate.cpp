#include "engine/jinja_builtins.h"
#include "engine/jinja_interpreter.h"
#include "engine/jinja_operators.h"
#include "engine/jinja_print.h"

namespace batchmill::jinja {

Value Interpreter::evaluate(const Expression& expression) {
  charge();
  const Nested nested;
  line_ = expression.line;
  switch (expression.kind) {
    case ExpressionKind::kConstant:
      return static_cast<const ConstantNode&>(expression).value;
    case ExpressionKind::kName:
      return evaluate_name(static_cast<const NameNode&>(expression).symbol);
    case ExpressionKind::kList:
      return Value::list(evaluate_all(static_cast<const OperandsNode&>(expression).operands));
    case ExpressionKind::kTuple:
      return Value::tuple(evaluate_all(static_cast<const OperandsNode&>(expression).operands));
    case ExpressionKind::kDict:
      return evaluate_dict(static_cast<const DictNode&>(expression));
    case ExpressionKind::kAttribute: {
      const auto& node = static_cast<const AttributeNode&>(expression);
      return get_attribute(evaluate(*node.object), node.name);
    }
    case ExpressionKind::kItem:
      return evaluate_item(static_cast<const ItemNode&>(expression));
    case ExpressionKind::kSlice:
      type_error("a slice has no value of its own");
    case ExpressionKind::kCall: {
      const auto& node = static_cast<const CallNode&>(expression);
      const Value callee = evaluate(*node.callee);
      Arguments arguments = evaluate_arguments(node.arguments);
      line_ = expression.line;
      return call(callee, std::move(arguments));
    }
    case ExpressionKind::kFilter:
      return evaluate_filter(static_cast<const FilterNode&>(expression), nullptr);
    case ExpressionKind::kTest:
      return evaluate_test(static_cast<const TestNode&>(expression));
    case ExpressionKind::kArithmetic:
      return evaluate_chain(static_cast<const ChainNode&>(expression));
    case ExpressionKind::kConcat:
      return evaluate_concat(static_cast<const OperandsNode&>(expression));
    case ExpressionKind::kCompare:
      return evaluate_compare(static_cast<const ChainNode&>(expression));
    case ExpressionKind::kAnd:
    case ExpressionKind::kOr:
      return evaluate_logic(static_cast<const OperandsNode&>(expression));
    case ExpressionKind::kNot:
      return Value::boolean(
          !truthy(evaluate(*static_cast<const OperandsNode&>(expression).operands[0])));
    case ExpressionKind::kNegate:
      return negate(evaluate(*static_cast<const OperandsNode&>(expression).operands[0]));
    case ExpressionKind::kPlus:
      return plus(evaluate(*static_cast<const OperandsNode&>(expression).operands[0]));
    case ExpressionKind::kConditional: {
      const auto& node = static_cast<const ConditionalNode&>(expression);
      if (truthy(evaluate(*node.test))) return evaluate(*node.then);
      if (node.otherwise != nullptr) return evaluate(*node.otherwise);
      return Value::undefined(
          "the inline if-expression evaluated to false and no else section was "
          "defined.");
    }
  }
  return Value();
}

Value Interpreter::evaluate_name(SymbolId symbol) {
  if (const Value* value = scope_->find(symbol)) return *value;
  const std::string& name = tree_.symbols[static_cast<std::size_t>(symbol)];
  if (const Value* value = globals_.as<DictObject>().find(name)) return *value;
  if (const Function function = find_global(name)) {
    auto object = std::make_shared<FunctionObject>();
    object->name = name;
    object->function = function;
    return Value::object(Kind::kFunction, std::move(object));
  }
  return Value::undefined("'" + name + "' is undefined");
}

Value Interpreter::evaluate_item(const ItemNode& node) {
  const Value object = evaluate(*node.object);
  if (node.index->kind != ExpressionKind::kSlice) return get_item(object, evaluate(*node.index));
  const auto& slice = static_cast<const SliceNode&>(*node.index);
  const auto bound = [&](const ExpressionPtr& part) {
    return part == nullptr ? Value::none() : evaluate(*part);
  };
  const Value start = bound(slice.start);
  const Value stop = bound(slice.stop);
  return get_slice(object, start, stop, bound(slice.step));
}

Value Interpreter::evaluate_dict(const DictNode& node) {
  std::vector<std::pair<Value, Value>> items;
  items.reserve(node.items.size());
  for (const auto& [key, value] : node.items) {
    Value key_value = evaluate(*key);
    hash_of(key_value);
    items.emplace_back(std::move(key_value), evaluate(*value));
  }
  return Value::dict_of(std::move(items));
}

Value Interpreter::evaluate_chain(const ChainNode& node) {
  Value value = evaluate(*node.first);
  for (const auto& [op, operand] : node.rest) {
    value = arithmetic(op, value, evaluate(*operand));
  }
  return value;
}

Value Interpreter::evaluate_compare(const ChainNode& node) {
  Value left = evaluate(*node.first);
  for (const auto& [op, operand] : node.rest) {
    Value right = evaluate(*operand);
    if (!compare(op, left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::evaluate_logic(const OperandsNode& node) {
  const bool stops_at = node.kind == ExpressionKind::kOr;
  Value value;
  for (const auto& operand : node.operands) {
    value = evaluate(*operand);
    if (truthy(value) == stops_at) break;
  }
  return value;
}

Value Interpreter::evaluate_concat(const OperandsNode& node) {
  Text out;
  for (const Value& value : evaluate_all(node.operands)) {
    append_text(out, value);
  }
  return Value::text(std::move(out));
}

Value Interpreter::evaluate_filter(const FilterNode& node, const Value* block) {
  Value input;
  if (node.input == nullptr) {
    input = *block;
  } else if (block != nullptr) {
    input = evaluate_filter(static_cast<const FilterNode&>(*node.input), block);
  } else {
    input = evaluate(*node.input);
  }
  if (node.filter == nullptr) fail("runtime", "No filter named '" + node.name + "' found.");
  const Arguments arguments = evaluate_arguments(node.arguments);
  line_ = node.line;
  return node.filter(input, arguments);
}

Value Interpreter::evaluate_test(const TestNode& node) {
  const Value input = evaluate(*node.input);
  if (node.test == nullptr) fail("runtime", "No test named '" + node.name + "' found.");
  const Arguments arguments = evaluate_arguments(node.arguments);
  line_ = node.line;
  return Value::boolean(node.test(input, arguments) != node.is_negated);
}

std::vector<Value> Interpreter::evaluate_all(const std::vector<ExpressionPtr>& nodes) {
  std::vector<Value> out;
  out.reserve(nodes.size());
  for (const auto& node : nodes) out.push_back(evaluate(*node));
  return out;
}

Arguments Interpreter::evaluate_arguments(const CallArguments& arguments) {
  Arguments out;
  out.positional = evaluate_all(arguments.positional);
  for (const auto& [name, node] : arguments.named) out.named.emplace_back(name, evaluate(*node));
  if (arguments.more_positional != nullptr) {
    for (Value& value : iterate(evaluate(*arguments.more_positional))) {
      out.positional.push_back(std::move(value));
    }
  }
  if (arguments.more_named != nullptr) {
    const Value more = evaluate(*arguments.more_named);
    if (!more.is(Kind::kDict)) type_error("argument after ** must be a mapping");
    for (const auto& [key, value] : more.as<DictObject>().items) {
      if (!key.is(Kind::kString)) type_error("keywords must be strings");
      if (out.find(key.string_value()) != nullptr) {
        type_error("got multiple values for keyword argument '" + key.string_value() + "'");
      }
      out.named.emplace_back(key.string_value(), value);
    }
  }
  return out;
}

}  // namespace batchmill::jinja
