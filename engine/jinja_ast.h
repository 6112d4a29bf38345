// The parsed form of a template. Owned by the template, immutable, read by any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/jinja_objects.h"
#include "engine/jinja_value.h"

namespace batchmill::jinja {

// Names with a meaning of their own; every template's symbols begin with these.
enum : SymbolId { kLoopSymbol, kCallerSymbol, kVarargsSymbol, kKwargsSymbol };

using Filter = Value (*)(const Value& input, const Arguments& arguments);
using Test = bool (*)(const Value& input, const Arguments& arguments);

enum class Operator : std::uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

enum class ExpressionKind : std::uint8_t {
  kConstant,
  kName,
  kList,
  kTuple,
  kDict,
  kAttribute,
  kItem,
  kSlice,
  kCall,
  kFilter,
  kTest,
  kArithmetic,
  kConcat,
  kCompare,
  kAnd,
  kOr,
  kNot,
  kNegate,
  kPlus,
  kConditional,
};

// Nodes are told apart by `kind`; each kind is made by one struct only.
struct Expression {
  Expression(ExpressionKind k, int l) : kind(k), line(l) {}
  virtual ~Expression() = default;
  ExpressionKind kind;
  int line;
  std::int32_t height = 1;  // levels of the tree from here down
};
using ExpressionPtr = std::unique_ptr<Expression>;

struct ConstantNode : Expression {
  using Expression::Expression;
  Value value;
};

struct NameNode : Expression {
  using Expression::Expression;
  SymbolId symbol = 0;
};

// List, tuple; the operands of and, or, ~; the one operand of not, -, +.
struct OperandsNode : Expression {
  using Expression::Expression;
  std::vector<ExpressionPtr> operands;
};

struct DictNode : Expression {
  using Expression::Expression;
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> items;
};

struct AttributeNode : Expression {
  using Expression::Expression;
  ExpressionPtr object;
  std::string name;
};

struct ItemNode : Expression {
  using Expression::Expression;
  ExpressionPtr object;
  ExpressionPtr index;  // may be a SliceNode
};

struct SliceNode : Expression {
  using Expression::Expression;
  ExpressionPtr start, stop, step;  // each may be null
};

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr more_positional;  // *args, or null
  ExpressionPtr more_named;  // **kwargs, or null
};

struct CallNode : Expression {
  using Expression::Expression;
  ExpressionPtr callee;
  CallArguments arguments;
};

struct FilterNode : Expression {
  using Expression::Expression;
  ExpressionPtr input;  // null: the text of a filter or set block
  std::string name;
  Filter filter = nullptr;  // null: there is no such filter
  CallArguments arguments;
};

struct TestNode : Expression {
  using Expression::Expression;
  ExpressionPtr input;
  std::string name;
  Test test = nullptr;  // null: there is no such test
  bool is_negated = false;
  CallArguments arguments;
};

// first op operand op operand …: left to right, or a chained comparison.
struct ChainNode : Expression {
  using Expression::Expression;
  ExpressionPtr first;
  std::vector<std::pair<Operator, ExpressionPtr>> rest;
};

struct ConditionalNode : Expression {
  using Expression::Expression;
  ExpressionPtr test, then, otherwise;  // otherwise may be null
};

enum class StatementKind : std::uint8_t {
  kData,
  kPrint,
  kFor,
  kIf,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kBlock,
  kBreak,
  kContinue,
  kLoad,
};

struct Statement {
  Statement(StatementKind k, int l) : kind(k), line(l) {}
  virtual ~Statement() = default;
  StatementKind kind;
  int line;
};
using Body = std::vector<std::unique_ptr<Statement>>;

struct SimpleNode : Statement {  // break, continue, and what needs a loader of other templates
  using Statement::Statement;
};

struct DataNode : Statement {
  using Statement::Statement;
  std::string text;
};

struct PrintNode : Statement {
  using Statement::Statement;
  std::vector<ExpressionPtr> expressions;
};

// What a value is assigned to: a name, a namespace's attribute, or several targets.
struct Target {
  SymbolId symbol = 0;
  std::optional<std::string> attribute;
  std::vector<Target> parts;
  bool is_tuple = false;
};

struct ForNode : Statement {
  using Statement::Statement;
  Target target;
  ExpressionPtr iterable, test;  // test may be null
  bool is_recursive = false;
  Body body, otherwise;
};

struct IfNode : Statement {
  using Statement::Statement;
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  Body otherwise;
};

struct SetNode : Statement {
  using Statement::Statement;
  Target target;
  ExpressionPtr value;
};

struct SetBlockNode : Statement {
  using Statement::Statement;
  Target target;
  ExpressionPtr filter;  // may be null
  Body body;
};

struct MacroNode : Statement {
  using Statement::Statement;
  struct Parameter {
    SymbolId symbol;
    std::string name;
    ExpressionPtr fallback;  // may be null
  };
  SymbolId symbol = 0;
  std::string name;
  std::vector<Parameter> parameters;
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
  Body body;
};

struct CallBlockNode : Statement {
  using Statement::Statement;
  ExpressionPtr call;
  std::unique_ptr<MacroNode> caller;
};

struct FilterBlockNode : Statement {
  using Statement::Statement;
  ExpressionPtr filter;
  Body body;
};

struct WithNode : Statement {
  using Statement::Statement;
  std::vector<std::pair<Target, ExpressionPtr>> values;
  Body body;
};

struct BlockNode : Statement {  // a body with a scope of its own: generation, block, autoescape
  using Statement::Statement;
  Body body;
};

struct Template {
  Body body;
  std::vector<std::string> symbols;  // [SymbolId]
};

}  // namespace batchmill::jinja
