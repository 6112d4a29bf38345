// Recursive-descent parser for the expressions of a template; the statement parser stands on it.
// Lives while one template is parsed.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "engine/jinja_ast.h"
#include "engine/jinja_lexer.h"

namespace batchmill::jinja {

class ExpressionParser {
 protected:
  ExpressionParser(std::vector<Token> tokens, std::int32_t max_depth);

  // Counts nesting of the source as long as it lives.
  class Level {
   public:
    explicit Level(ExpressionParser& parser);
    ~Level() { --parser_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    ExpressionParser& parser_;
  };

  const Token& current() const { return tokens_[next_]; }
  const Token& ahead() const { return tokens_[std::min(next_ + 1, tokens_.size() - 1)]; }
  const Token& take();  // the tokens outlive the parser's use of it
  bool skip_name(std::string_view name);
  bool skip_operator(std::string_view sign);
  void expect_operator(std::string_view sign);
  void expect_name(std::string_view name);
  std::string take_name(const char* what);
  [[noreturn]] void fail_here(const std::string& message) const;
  SymbolId symbol(const std::string& name);

  ExpressionPtr parse_expression(bool with_conditional = true);
  // Expressions with commas between them are a tuple. `is_explicit`: empty parentheses are allowed.
  ExpressionPtr parse_tuple(bool with_conditional, std::string_view end_name = {},
                            bool is_explicit = false);
  ExpressionPtr parse_filters(ExpressionPtr input, bool starts_inline);

  std::vector<Token> tokens_;
  std::size_t next_ = 0;
  std::vector<std::string> symbols_;
  std::unordered_map<std::string, SymbolId> symbol_ids_;
  std::vector<MacroNode*> open_macros_;
  // Filters and tests that do not exist, with their lines, where that is an error before rendering.
  std::vector<std::pair<std::string, int>> unknown_;
  bool unknown_is_allowed_ = false;

 private:
  ExpressionPtr parse_conditional();
  ExpressionPtr parse_logic(bool is_and);
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_chain(int level);
  ExpressionPtr parse_concat();
  ExpressionPtr parse_unary(bool with_filter);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_strings();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr node);
  ExpressionPtr parse_subscript(ExpressionPtr node);
  ExpressionPtr parse_subscripted();
  ExpressionPtr parse_filter_or_test(ExpressionPtr node);
  ExpressionPtr parse_test(ExpressionPtr node);
  ExpressionPtr parse_call(ExpressionPtr callee);
  CallArguments parse_arguments(Expression& owner);
  ExpressionPtr operands(ExpressionKind kind, int line, ExpressionPtr only);

  // Puts `child` under `parent`; trees that are too high are refused.
  ExpressionPtr under(Expression& parent, ExpressionPtr child) const;

  std::int32_t max_depth_;
  std::int32_t depth_ = 0;
};

}  // namespace batchmill::jinja
