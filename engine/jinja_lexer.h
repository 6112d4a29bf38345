// Splits a template's source into tokens with Jinja's whitespace rules (trim_blocks, lstrip_blocks,
// no trailing newline). Pure function.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace batchmill::jinja {

enum class TokenType : std::uint8_t {
  kData,
  kBlockBegin,
  kBlockEnd,
  kVariableBegin,
  kVariableEnd,
  kName,
  kInteger,  // text: as written, without "_"
  kFloat,
  kString,  // text: escapes are resolved
  kOperator,
  kEnd,
};

struct Token {
  TokenType type;
  std::string text;
  int line;

  bool is_name(std::string_view name) const { return type == TokenType::kName && text == name; }
  bool is_operator(std::string_view sign) const {
    return type == TokenType::kOperator && text == sign;
  }
};

// The last token is kEnd. Throws TemplateError of kind "syntax".
std::vector<Token> tokenize(std::string_view source);

}  // namespace batchmill::jinja
