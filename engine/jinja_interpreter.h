// Walks the tree of a template and writes its text. Lives for one render, on one thread.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/jinja_arguments.h"
#include "engine/jinja_ast.h"
#include "engine/jinja_runtime.h"

namespace batchmill::jinja {

class Interpreter {
 public:
  // `globals`: a dict of the variables the template sees. Both outlive the interpreter.
  Interpreter(const Template& tree, const Value& globals) : tree_(tree), globals_(globals) {}

  Text run();
  int line() const { return line_; }  // of what is being evaluated

 private:
  enum class Flow { kNext, kBreak, kContinue };

  // Statements.
  Flow execute(const Body& body);
  Flow execute(const Statement& statement);
  Flow execute_for(const ForNode& node);
  Text run_loop(const ForNode& node, const Value& iterable, std::shared_ptr<Scope> scope,
                std::int32_t depth0, bool& is_broken);
  Flow execute_if(const IfNode& node);
  void execute_with(const WithNode& node);
  void execute_call_block(const CallBlockNode& node);
  Text captured(const Body& body, const std::shared_ptr<Scope>& scope);
  void assign(const Target& target, const Value& value);
  void print(const Value& value);
  void write(const Text& text);

  // Expressions.
  Value evaluate(const Expression& expression);
  Value evaluate_name(SymbolId symbol);
  Value evaluate_item(const ItemNode& node);
  Value evaluate_dict(const DictNode& node);
  Value evaluate_chain(const ChainNode& node);
  Value evaluate_compare(const ChainNode& node);
  Value evaluate_logic(const OperandsNode& node);
  Value evaluate_concat(const OperandsNode& node);
  Value evaluate_filter(const FilterNode& node, const Value* block);
  Value evaluate_test(const TestNode& node);
  std::vector<Value> evaluate_all(const std::vector<ExpressionPtr>& nodes);
  Arguments evaluate_arguments(const CallArguments& arguments);

  // Calls.
  Value call(const Value& callee, Arguments arguments);
  Value call_macro(const MacroObject& macro, Arguments arguments);
  Value make_macro(const MacroNode& node);

  const Template& tree_;
  const Value& globals_;
  std::shared_ptr<Scope> scope_;
  Text* out_ = nullptr;
  int line_ = 0;
};

}  // namespace batchmill::jinja
