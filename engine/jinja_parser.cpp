#include "engine/jinja_parser.h"

#include <algorithm>

#include "engine/jinja_expression_parser.h"
#include "engine/jinja_lexer.h"
#include "engine/template_error.h"

namespace batchmill::jinja {
namespace {

using Names = std::vector<std::string_view>;

class StatementParser : private ExpressionParser {
 public:
  StatementParser(std::string_view source, std::int32_t max_depth)
      : ExpressionParser(tokenize(source), max_depth) {}

  Template run() {
    Template out;
    out.body = parse_until({});
    if (!unknown_.empty()) {
      throw TemplateError("syntax", unknown_.front().first, unknown_.front().second);
    }
    out.symbols = std::move(symbols_);
    return out;
  }

 private:
  // Statements up to a tag that begins with one of `ends`; that name is the current token then.
  Body parse_until(const Names& ends) {
    const Level level(*this);
    Body body;
    while (true) {
      const Token& token = current();
      switch (token.type) {
        case TokenType::kData: {
          auto node = std::make_unique<DataNode>(StatementKind::kData, token.line);
          node->text = take().text;
          body.push_back(std::move(node));
          break;
        }
        case TokenType::kVariableBegin: {
          auto node = std::make_unique<PrintNode>(StatementKind::kPrint, token.line);
          take();
          node->expressions.push_back(parse_tuple(true));
          expect(TokenType::kVariableEnd, "end of print statement");
          body.push_back(std::move(node));
          break;
        }
        case TokenType::kBlockBegin:
          take();
          if (is_one_of(ends)) return body;
          body.push_back(parse_statement());
          expect(TokenType::kBlockEnd, "end of statement block");
          break;
        default:
          if (!ends.empty()) fail_missing_end(ends);
          return body;
      }
    }
  }

  bool is_one_of(const Names& names) const {
    return std::any_of(names.begin(), names.end(),
                       [&](std::string_view name) { return current().is_name(name); });
  }

  [[noreturn]] void fail_missing_end(const Names& ends) {
    std::string tags;
    for (const std::string_view end : ends) {
      tags += std::string(tags.empty() ? "'" : " or '") + std::string(end) + "'";
    }
    fail_here("Unexpected end of template. Jinja was looking for the following tags: " + tags +
              ". The innermost block that needs to be closed is '" + open_tags_.back() + "'.");
  }

  void expect(TokenType type, const char* what) {
    if (current().type != type) {
      fail_here(std::string("expected token '") + what + "', got '" + current().text + "'");
    }
    take();
  }

  // The body of a tag, up to one of `ends`.
  Body parse_body(const Names& ends) {
    skip_operator(":");
    expect(TokenType::kBlockEnd, "end of statement block");
    return parse_until(ends);
  }

  // The same up to the only end tag, which is taken.
  Body parse_whole_body(std::string_view end) {
    Body body = parse_body({end});
    take();
    return body;
  }

  // A body that Jinja compiles as a scope of its own: unknown filters are errors there again.
  template <typename Parse>
  Body in_own_scope(Parse parse) {
    const bool was_allowed = unknown_is_allowed_;
    unknown_is_allowed_ = false;
    Body body = parse();
    unknown_is_allowed_ = was_allowed;
    return body;
  }

  std::unique_ptr<Statement> parse_statement() {
    const int line = current().line;
    if (current().type != TokenType::kName) fail_here("tag name expected");
    const std::string tag = take().text;
    open_tags_.push_back(tag);
    std::unique_ptr<Statement> node = parse_tag(tag, line);
    open_tags_.pop_back();
    return node;
  }

  std::unique_ptr<Statement> parse_tag(const std::string& tag, int line) {
    if (tag == "for") return parse_for(line);
    if (tag == "if") return parse_if(line);
    if (tag == "set") return parse_set(line);
    if (tag == "macro") return parse_macro(line);
    if (tag == "call") return parse_call_block(line);
    if (tag == "filter") return parse_filter_block(line);
    if (tag == "with") return parse_with(line);
    if (tag == "print") return parse_print(line);
    if (tag == "generation") return parse_block(line, "endgeneration");
    if (tag == "block") return parse_named_block(line);
    if (tag == "autoescape") {
      parse_expression();
      return parse_block(line, "endautoescape");
    }
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) {
        throw TemplateError("SyntaxError", "'" + tag + "' outside loop", line);
      }
      return std::make_unique<SimpleNode>(
          tag == "break" ? StatementKind::kBreak : StatementKind::kContinue, line);
    }
    if (tag == "include" || tag == "import" || tag == "extends" || tag == "from") {
      while (current().type != TokenType::kBlockEnd && current().type != TokenType::kEnd) take();
      return std::make_unique<SimpleNode>(StatementKind::kLoad, line);
    }
    fail_here("Encountered unknown tag '" + tag + "'.");
  }

  // --- targets of assignments

  Target parse_one_target(bool with_namespace) {
    if (skip_operator("(")) {
      Target target = parse_target(with_namespace, ")");
      expect_operator(")");
      return target;
    }
    static constexpr std::string_view kConstants[] = {"true", "false", "none",
                                                      "True", "False", "None"};
    for (const std::string_view name : kConstants) {
      if (current().is_name(name)) fail_here("can't assign to '" + std::string(name) + "'");
    }
    Target target;
    target.symbol = symbol(take_name("a name to assign to"));
    if (with_namespace && skip_operator(".")) target.attribute = take_name("an attribute's name");
    return target;
  }

  // One target, or several with commas between them, up to `end`.
  Target parse_target(bool with_namespace, std::string_view end) {
    const Level level(*this);
    Target several;
    while (true) {
      if (current().is_name(end) || current().is_operator(end) ||
          current().type == TokenType::kBlockEnd) {
        break;
      }
      several.parts.push_back(parse_one_target(with_namespace));
      if (!skip_operator(",")) break;
      several.is_tuple = true;
    }
    if (several.parts.empty() && end != ")") fail_here("expected a name to assign to");
    if (several.parts.empty()) several.is_tuple = true;
    if (several.is_tuple) return several;
    return Target(several.parts.front());
  }

  // --- tags

  std::unique_ptr<Statement> parse_for(int line) {
    auto node = std::make_unique<ForNode>(StatementKind::kFor, line);
    node->target = parse_target(false, "in");
    expect_name("in");
    node->iterable = parse_tuple(false, "recursive");
    const bool was_allowed = unknown_is_allowed_;
    unknown_is_allowed_ = false;
    if (skip_name("if")) node->test = parse_expression();
    node->is_recursive = skip_name("recursive");
    ++loops_;
    node->body = parse_body({"endfor", "else"});
    --loops_;
    if (take().text == "else") node->otherwise = parse_whole_body("endfor");
    unknown_is_allowed_ = was_allowed;
    return node;
  }

  std::unique_ptr<Statement> parse_if(int line) {
    auto node = std::make_unique<IfNode>(StatementKind::kIf, line);
    const bool was_allowed = unknown_is_allowed_;
    unknown_is_allowed_ = true;
    while (true) {
      ExpressionPtr test = parse_tuple(false);
      Body body = parse_body({"elif", "else", "endif"});
      node->branches.emplace_back(std::move(test), std::move(body));
      const std::string tag = take().text;
      if (tag == "elif") continue;
      if (tag == "else") node->otherwise = parse_whole_body("endif");
      break;
    }
    unknown_is_allowed_ = was_allowed;
    return node;
  }

  std::unique_ptr<Statement> parse_set(int line) {
    Target target = parse_target(true, "=");
    if (skip_operator("=")) {
      auto node = std::make_unique<SetNode>(StatementKind::kSet, line);
      node->target = std::move(target);
      node->value = parse_tuple(true);
      return node;
    }
    auto node = std::make_unique<SetBlockNode>(StatementKind::kSetBlock, line);
    node->target = std::move(target);
    node->body = in_own_scope([&] {
      node->filter = parse_filters(nullptr, false);
      return parse_whole_body("endset");
    });
    return node;
  }

  void parse_parameters(MacroNode& macro) {
    expect_operator("(");
    while (!current().is_operator(")")) {
      if (!macro.parameters.empty()) expect_operator(",");
      MacroNode::Parameter parameter;
      parameter.name = take_name("a parameter's name");
      parameter.symbol = symbol(parameter.name);
      if (skip_operator("=")) {
        parameter.fallback = parse_expression();
      } else if (!macro.parameters.empty() && macro.parameters.back().fallback != nullptr) {
        fail_here("non-default argument follows default argument");
      }
      macro.parameters.push_back(std::move(parameter));
    }
    expect_operator(")");
  }

  // Breaks inside a macro do not reach loops around it.
  Body parse_macro_body(MacroNode& macro, std::string_view end) {
    open_macros_.push_back(&macro);
    const int outer_loops = loops_;
    loops_ = 0;
    Body body = in_own_scope([&] { return parse_whole_body(end); });
    loops_ = outer_loops;
    open_macros_.pop_back();
    return body;
  }

  std::unique_ptr<Statement> parse_macro(int line) {
    auto node = std::make_unique<MacroNode>(StatementKind::kMacro, line);
    node->name = take_name("a macro's name");
    node->symbol = symbol(node->name);
    parse_parameters(*node);
    node->body = parse_macro_body(*node, "endmacro");
    return node;
  }

  std::unique_ptr<Statement> parse_call_block(int line) {
    auto node = std::make_unique<CallBlockNode>(StatementKind::kCallBlock, line);
    node->caller = std::make_unique<MacroNode>(StatementKind::kMacro, line);
    node->caller->name = "caller";
    if (current().is_operator("(")) parse_parameters(*node->caller);
    node->call = parse_expression();
    if (node->call->kind != ExpressionKind::kCall) fail_here("expected call");
    node->caller->body = parse_macro_body(*node->caller, "endcall");
    return node;
  }

  std::unique_ptr<Statement> parse_filter_block(int line) {
    auto node = std::make_unique<FilterBlockNode>(StatementKind::kFilterBlock, line);
    node->body = in_own_scope([&] {
      node->filter = parse_filters(nullptr, true);
      return parse_whole_body("endfilter");
    });
    return node;
  }

  std::unique_ptr<Statement> parse_with(int line) {
    auto node = std::make_unique<WithNode>(StatementKind::kWith, line);
    while (current().type != TokenType::kBlockEnd) {
      if (!node->values.empty()) expect_operator(",");
      Target target = parse_target(false, "=");
      expect_operator("=");
      node->values.emplace_back(std::move(target), parse_expression());
    }
    node->body = in_own_scope([&] { return parse_whole_body("endwith"); });
    return node;
  }

  std::unique_ptr<Statement> parse_print(int line) {
    auto node = std::make_unique<PrintNode>(StatementKind::kPrint, line);
    while (current().type != TokenType::kBlockEnd) {
      if (!node->expressions.empty()) expect_operator(",");
      node->expressions.push_back(parse_expression());
    }
    return node;
  }

  std::unique_ptr<Statement> parse_block(int line, std::string_view end) {
    auto node = std::make_unique<BlockNode>(StatementKind::kBlock, line);
    node->body = in_own_scope([&] { return parse_whole_body(end); });
    return node;
  }

  std::unique_ptr<Statement> parse_named_block(int line) {
    const std::string name = take_name("a block's name");
    skip_name("scoped");
    skip_name("required");
    auto node = parse_block(line, "endblock");
    skip_name(name);
    return node;
  }

  std::vector<std::string> open_tags_;
  int loops_ = 0;
};

}  // namespace

Template parse_template(std::string_view source, std::int32_t max_depth) {
  return StatementParser(source, max_depth).run();
}

}  // namespace batchmill::jinja
