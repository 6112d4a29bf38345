#include "engine/jinja_expression_parser.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "engine/jinja_bigint.h"
#include "engine/jinja_builtins.h"
#include "engine/jinja_operators.h"
#include "engine/template_error.h"

namespace batchmill::jinja {
namespace {

// A tree may be this many times as high as sources may nest: a.b.c grows the tree, not the nesting.
constexpr std::int32_t kHeightPerDepth = 5;

std::string describe(const Token& token) {
  switch (token.type) {
    case TokenType::kEnd:
      return "end of template";
    case TokenType::kBlockEnd:
      return "end of statement block";
    case TokenType::kVariableEnd:
      return "end of print statement";
    case TokenType::kData:
      return "template data / text";
    default:
      return token.text;
  }
}

Value integer_value(const std::string& text) {
  const char kind = text.size() > 1 ? static_cast<char>(text[1] | 32) : '\0';
  const unsigned base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
  return normalized(BigInt::from_digits(std::string_view(text).substr(base == 10 ? 0 : 2), base));
}

}  // namespace

ExpressionParser::ExpressionParser(std::vector<Token> tokens, std::int32_t max_depth)
    : tokens_(std::move(tokens)), max_depth_(max_depth) {
  for (const char* name : {"loop", "caller", "varargs", "kwargs"}) symbol(name);
}

ExpressionParser::Level::Level(ExpressionParser& parser) : parser_(parser) {
  if (parser.depth_ >= parser.max_depth_) {
    throw TemplateError("limit", "the template nests too deep", parser.current().line);
  }
  ++parser.depth_;
}

const Token& ExpressionParser::take() {
  const Token& token = tokens_[next_];
  if (next_ + 1 < tokens_.size()) ++next_;
  return token;
}

bool ExpressionParser::skip_name(std::string_view name) {
  if (!current().is_name(name)) return false;
  take();
  return true;
}

bool ExpressionParser::skip_operator(std::string_view sign) {
  if (!current().is_operator(sign)) return false;
  take();
  return true;
}

void ExpressionParser::expect_operator(std::string_view sign) {
  if (skip_operator(sign)) return;
  fail_here("expected token '" + std::string(sign) + "', got '" + describe(current()) + "'");
}

void ExpressionParser::expect_name(std::string_view name) {
  if (skip_name(name)) return;
  fail_here("expected token '" + std::string(name) + "', got '" + describe(current()) + "'");
}

std::string ExpressionParser::take_name(const char* what) {
  if (current().type != TokenType::kName) {
    fail_here(std::string("expected ") + what + ", got '" + describe(current()) + "'");
  }
  return take().text;
}

void ExpressionParser::fail_here(const std::string& message) const {
  throw TemplateError("syntax", message, current().line);
}

SymbolId ExpressionParser::symbol(const std::string& name) {
  const auto [it, is_new] = symbol_ids_.emplace(name, static_cast<SymbolId>(symbols_.size()));
  if (is_new) symbols_.push_back(name);
  return it->second;
}

ExpressionPtr ExpressionParser::under(Expression& parent, ExpressionPtr child) const {
  if (child == nullptr) return child;
  parent.height = std::max(parent.height, child->height + 1);
  if (parent.height > max_depth_ * kHeightPerDepth) {
    throw TemplateError("limit", "an expression of the template is too deep", parent.line);
  }
  return child;
}

ExpressionPtr ExpressionParser::operands(ExpressionKind kind, int line, ExpressionPtr only) {
  auto node = std::make_unique<OperandsNode>(kind, line);
  node->operands.push_back(under(*node, std::move(only)));
  return node;
}

ExpressionPtr ExpressionParser::parse_expression(bool with_conditional) {
  const Level level(*this);
  return with_conditional ? parse_conditional() : parse_logic(false);
}

ExpressionPtr ExpressionParser::parse_conditional() {
  const int line = current().line;
  const std::size_t unknown_before = unknown_.size();
  ExpressionPtr node = parse_logic(false);
  while (skip_name("if")) {
    auto conditional = std::make_unique<ConditionalNode>(ExpressionKind::kConditional, line);
    conditional->then = under(*conditional, std::move(node));
    conditional->test = under(*conditional, parse_logic(false));
    if (skip_name("else")) {
      const Level level(*this);
      conditional->otherwise = under(*conditional, parse_conditional());
    }
    unknown_.resize(unknown_before);  // may be never reached
    node = std::move(conditional);
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_logic(bool is_and) {
  const int line = current().line;
  ExpressionPtr first = is_and ? parse_not() : parse_logic(true);
  const std::string_view word = is_and ? "and" : "or";
  if (!current().is_name(word)) return first;
  auto node =
      std::make_unique<OperandsNode>(is_and ? ExpressionKind::kAnd : ExpressionKind::kOr, line);
  node->operands.push_back(under(*node, std::move(first)));
  while (skip_name(word)) {
    node->operands.push_back(under(*node, is_and ? parse_not() : parse_logic(true)));
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_not() {
  const int line = current().line;
  if (!skip_name("not")) return parse_compare();
  const Level level(*this);
  return operands(ExpressionKind::kNot, line, parse_not());
}

ExpressionPtr ExpressionParser::parse_compare() {
  static constexpr std::pair<std::string_view, Operator> kSigns[] = {
      {"==", Operator::kEqual},     {"!=", Operator::kNotEqual}, {"<", Operator::kLess},
      {"<=", Operator::kLessEqual}, {">", Operator::kGreater},   {">=", Operator::kGreaterEqual}};
  auto node = std::make_unique<ChainNode>(ExpressionKind::kCompare, current().line);
  node->first = under(*node, parse_chain(0));
  while (true) {
    const auto* sign = std::find_if(std::begin(kSigns), std::end(kSigns),
                                    [&](const auto& s) { return current().is_operator(s.first); });
    Operator op = Operator::kIn;
    if (sign != std::end(kSigns)) {
      op = sign->second;
    } else if (current().is_name("not") && ahead().is_name("in")) {
      take();
      op = Operator::kNotIn;
    } else if (!current().is_name("in")) {
      break;
    }
    take();
    node->rest.emplace_back(op, under(*node, parse_chain(0)));
  }
  if (node->rest.empty()) return std::move(node->first);
  return node;
}

// Level 0: + -; 1: * / // %; 2: **. Jinja's ~ binds between + and *.
ExpressionPtr ExpressionParser::parse_chain(int level) {
  struct Sign {
    int level;
    std::string_view text;
    Operator op;
  };
  static constexpr Sign kSigns[] = {
      {0, "+", Operator::kAdd},    {0, "-", Operator::kSubtract},     {1, "*", Operator::kMultiply},
      {1, "/", Operator::kDivide}, {1, "//", Operator::kFloorDivide}, {1, "%", Operator::kModulo},
      {2, "**", Operator::kPower}};
  const auto parse_operand = [&] {
    return level == 0 ? parse_concat() : level == 1 ? parse_chain(2) : parse_unary(true);
  };
  auto node = std::make_unique<ChainNode>(ExpressionKind::kArithmetic, current().line);
  node->first = under(*node, parse_operand());
  while (true) {
    const auto* sign = std::find_if(std::begin(kSigns), std::end(kSigns), [&](const Sign& s) {
      return s.level == level && current().is_operator(s.text);
    });
    if (sign == std::end(kSigns)) break;
    take();
    node->rest.emplace_back(sign->op, under(*node, parse_operand()));
  }
  if (node->rest.empty()) return std::move(node->first);
  return node;
}

ExpressionPtr ExpressionParser::parse_concat() {
  const int line = current().line;
  ExpressionPtr first = parse_chain(1);
  if (!current().is_operator("~")) return first;
  auto node = std::make_unique<OperandsNode>(ExpressionKind::kConcat, line);
  node->operands.push_back(under(*node, std::move(first)));
  while (skip_operator("~")) node->operands.push_back(under(*node, parse_chain(1)));
  return node;
}

ExpressionPtr ExpressionParser::parse_unary(bool with_filter) {
  const int line = current().line;
  ExpressionPtr node;
  if (current().is_operator("-") || current().is_operator("+")) {
    const Level level(*this);
    const auto kind = take().text == "-" ? ExpressionKind::kNegate : ExpressionKind::kPlus;
    node = operands(kind, line, parse_unary(false));
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filter ? parse_filter_or_test(std::move(node)) : std::move(node);
}

ExpressionPtr ExpressionParser::parse_primary() {
  const Token& token = current();
  const auto constant = [&](Value value) {
    auto node = std::make_unique<ConstantNode>(ExpressionKind::kConstant, token.line);
    node->value = std::move(value);
    take();
    return node;
  };
  switch (token.type) {
    case TokenType::kName: {
      if (token.text == "true" || token.text == "True") return constant(Value::boolean(true));
      if (token.text == "false" || token.text == "False") return constant(Value::boolean(false));
      if (token.text == "none" || token.text == "None") return constant(Value::none());
      auto node = std::make_unique<NameNode>(ExpressionKind::kName, token.line);
      node->symbol = symbol(token.text);
      for (MacroNode* macro : open_macros_) {
        macro->uses_caller = macro->uses_caller || node->symbol == kCallerSymbol;
        macro->uses_varargs = macro->uses_varargs || node->symbol == kVarargsSymbol;
        macro->uses_kwargs = macro->uses_kwargs || node->symbol == kKwargsSymbol;
      }
      take();
      return node;
    }
    case TokenType::kString:
      return parse_strings();
    case TokenType::kInteger:
      return constant(integer_value(token.text));
    case TokenType::kFloat: {
      double value = 0;
      const auto result =
          std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
      if (result.ec == std::errc::result_out_of_range) {
        value = token.text.find("e-") != std::string::npos ? 0.0 : HUGE_VAL;
      }
      return constant(Value::floating(value));
    }
    default:
      break;
  }
  if (skip_operator("(")) {
    ExpressionPtr node = parse_tuple(true, {}, true);
    expect_operator(")");
    return node;
  }
  if (token.is_operator("[")) return parse_list();
  if (token.is_operator("{")) return parse_dict();
  fail_here("unexpected '" + describe(token) + "'");
}

ExpressionPtr ExpressionParser::parse_strings() {
  auto node = std::make_unique<ConstantNode>(ExpressionKind::kConstant, current().line);
  std::string text;
  while (current().type == TokenType::kString) text += take().text;
  node->value = Value::string(text);
  return node;
}

ExpressionPtr ExpressionParser::parse_list() {
  auto node = std::make_unique<OperandsNode>(ExpressionKind::kList, current().line);
  expect_operator("[");
  while (!current().is_operator("]")) {
    if (!node->operands.empty()) expect_operator(",");
    if (current().is_operator("]")) break;
    node->operands.push_back(under(*node, parse_expression()));
  }
  expect_operator("]");
  return node;
}

ExpressionPtr ExpressionParser::parse_dict() {
  auto node = std::make_unique<DictNode>(ExpressionKind::kDict, current().line);
  expect_operator("{");
  while (!current().is_operator("}")) {
    if (!node->items.empty()) expect_operator(",");
    if (current().is_operator("}")) break;
    ExpressionPtr key = under(*node, parse_expression());
    expect_operator(":");
    node->items.emplace_back(std::move(key), under(*node, parse_expression()));
  }
  expect_operator("}");
  return node;
}

ExpressionPtr ExpressionParser::parse_tuple(bool with_conditional, std::string_view end_name,
                                            bool is_explicit) {
  auto node = std::make_unique<OperandsNode>(ExpressionKind::kTuple, current().line);
  bool is_tuple = false;
  while (true) {
    if (!node->operands.empty()) expect_operator(",");
    const Token& token = current();
    if (token.type == TokenType::kVariableEnd || token.type == TokenType::kBlockEnd ||
        token.is_operator(")") || (!end_name.empty() && token.is_name(end_name))) {
      break;
    }
    node->operands.push_back(under(*node, parse_expression(with_conditional)));
    if (!current().is_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!node->operands.empty()) return std::move(node->operands.front());
    if (!is_explicit) fail_here("Expected an expression, got '" + describe(current()) + "'");
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr node) {
  while (true) {
    if (current().is_operator(".") || current().is_operator("[")) {
      node = parse_subscript(std::move(node));
    } else if (current().is_operator("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr object) {
  const int line = current().line;
  auto item = std::make_unique<ItemNode>(ExpressionKind::kItem, line);
  if (skip_operator(".")) {
    if (current().type == TokenType::kName) {
      auto node = std::make_unique<AttributeNode>(ExpressionKind::kAttribute, line);
      node->object = under(*node, std::move(object));
      node->name = take().text;
      return node;
    }
    if (current().type != TokenType::kInteger) fail_here("expected name or number");
    auto index = std::make_unique<ConstantNode>(ExpressionKind::kConstant, line);
    index->value = integer_value(take().text);
    item->object = under(*item, std::move(object));
    item->index = std::move(index);
    return item;
  }
  expect_operator("[");
  auto keys = std::make_unique<OperandsNode>(ExpressionKind::kTuple, line);
  while (!current().is_operator("]")) {
    if (!keys->operands.empty()) expect_operator(",");
    keys->operands.push_back(under(*keys, parse_subscripted()));
  }
  expect_operator("]");
  item->object = under(*item, std::move(object));
  if (keys->operands.size() == 1) {
    item->index = under(*item, std::move(keys->operands.front()));
  } else {
    item->index = under(*item, std::move(keys));
  }
  return item;
}

ExpressionPtr ExpressionParser::parse_subscripted() {
  auto slice = std::make_unique<SliceNode>(ExpressionKind::kSlice, current().line);
  if (!current().is_operator(":")) {
    ExpressionPtr start = parse_expression();
    if (!current().is_operator(":")) return start;
    slice->start = under(*slice, std::move(start));
  }
  expect_operator(":");
  const auto ends = [&] { return current().is_operator("]") || current().is_operator(","); };
  if (!ends() && !current().is_operator(":")) slice->stop = under(*slice, parse_expression());
  if (skip_operator(":") && !ends()) slice->step = under(*slice, parse_expression());
  return slice;
}

ExpressionPtr ExpressionParser::parse_filter_or_test(ExpressionPtr node) {
  while (true) {
    if (current().is_operator("|")) {
      node = parse_filters(std::move(node), false);
    } else if (current().is_name("is")) {
      node = parse_test(std::move(node));
    } else if (current().is_operator("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr input, bool starts_inline) {
  while (current().is_operator("|") || starts_inline) {
    if (!starts_inline) take();
    starts_inline = false;
    auto node = std::make_unique<FilterNode>(ExpressionKind::kFilter, current().line);
    node->name = take_name("a filter's name");
    while (skip_operator(".")) node->name += "." + take_name("a filter's name");
    node->filter = find_filter(node->name);
    if (node->filter == nullptr && !unknown_is_allowed_) {
      unknown_.emplace_back("No filter named '" + node->name + "'.", node->line);
    }
    node->input = under(*node, std::move(input));
    if (current().is_operator("(")) node->arguments = parse_arguments(*node);
    input = std::move(node);
  }
  return input;
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr input) {
  auto node = std::make_unique<TestNode>(ExpressionKind::kTest, current().line);
  expect_name("is");
  node->is_negated = skip_name("not");
  node->name = take_name("a test's name");
  while (skip_operator(".")) node->name += "." + take_name("a test's name");
  node->test = find_test(node->name);
  if (node->test == nullptr && !unknown_is_allowed_) {
    unknown_.emplace_back("No test named '" + node->name + "'.", node->line);
  }
  node->input = under(*node, std::move(input));
  const Token& token = current();
  const bool starts_operand = token.type == TokenType::kName || token.type == TokenType::kString ||
                              token.type == TokenType::kInteger ||
                              token.type == TokenType::kFloat || token.is_operator("[") ||
                              token.is_operator("{");
  if (token.is_operator("(")) {
    node->arguments = parse_arguments(*node);
  } else if (starts_operand && !token.is_name("else") && !token.is_name("or") &&
             !token.is_name("and")) {
    if (token.is_name("is")) fail_here("You cannot chain multiple tests with is");
    node->arguments.positional.push_back(under(*node, parse_postfix(parse_primary())));
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_call(ExpressionPtr callee) {
  auto node = std::make_unique<CallNode>(ExpressionKind::kCall, current().line);
  node->callee = under(*node, std::move(callee));
  node->arguments = parse_arguments(*node);
  return node;
}

CallArguments ExpressionParser::parse_arguments(Expression& owner) {
  CallArguments out;
  expect_operator("(");
  bool is_first = true;
  while (!current().is_operator(")")) {
    if (!is_first) {
      expect_operator(",");
      if (current().is_operator(")")) break;
    }
    is_first = false;
    const auto require = [&](bool allowed) {
      if (!allowed) fail_here("invalid syntax for function call expression");
    };
    if (skip_operator("*")) {
      require(out.more_positional == nullptr && out.more_named == nullptr);
      out.more_positional = under(owner, parse_expression());
    } else if (skip_operator("**")) {
      require(out.more_named == nullptr);
      out.more_named = under(owner, parse_expression());
    } else if (current().type == TokenType::kName && ahead().is_operator("=")) {
      require(out.more_named == nullptr);
      std::string name = take().text;
      take();
      out.named.emplace_back(std::move(name), under(owner, parse_expression()));
    } else {
      require(out.more_positional == nullptr && out.more_named == nullptr && out.named.empty());
      out.positional.push_back(under(owner, parse_expression()));
    }
  }
  expect_operator(")");
  return out;
}

}  // namespace batchmill::jinja
