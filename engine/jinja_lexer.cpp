#include "engine/jinja_lexer.h"

#include <algorithm>
#include <optional>

#include "engine/jinja_text.h"
#include "engine/jinja_unicode.h"
#include "engine/template_error.h"

namespace batchmill::jinja {
namespace {

// Newlines are "\n"; one at the end of the template is dropped.
std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
    } else {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : s_(normalize_newlines(source)) {}

  std::vector<Token> run() {
    while (pos_ < s_.size()) template_text();
    emit(TokenType::kEnd, "", pos_);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail_at(std::size_t position, const std::string& message) {
    throw TemplateError("syntax", message, line_at(position));
  }

  // Lines are asked for in rising order of position.
  int line_at(std::size_t position) {
    position = std::min(position, s_.size());
    if (position < line_position_) {
      line_position_ = 0;
      line_ = 1;
    }
    line_ += static_cast<int>(std::count(s_.begin() + static_cast<std::ptrdiff_t>(line_position_),
                                         s_.begin() + static_cast<std::ptrdiff_t>(position), '\n'));
    line_position_ = position;
    return line_;
  }

  void emit(TokenType type, std::string text, std::size_t position) {
    tokens_.push_back({type, std::move(text), line_at(position)});
  }

  bool at(std::size_t position, std::string_view text) const {
    return s_.compare(position, text.size(), text) == 0;
  }

  std::size_t skip_space(std::size_t position) const {
    while (position < s_.size()) {
      std::size_t next = position;
      if (!is_space(read_utf8(s_, next))) break;
      position = next;
    }
    return position;
  }

  static std::size_t without_trailing_space(std::string_view text) {
    std::size_t end = 0;
    for (std::size_t i = 0; i < text.size();) {
      if (!is_space(read_utf8(text, i))) end = i;
    }
    return end;
  }

  // Emits the text before a tag whose two-character opener is at `end`; returns behind its sign.
  std::size_t text_before_tag(std::size_t begin, std::size_t end, bool is_variable) {
    std::string_view text(s_.data() + begin, end - begin);
    const char sign = end + 2 < s_.size() ? s_[end + 2] : '\0';
    if (sign == '-') {
      text = text.substr(0, without_trailing_space(text));
    } else if (sign != '+' && !is_variable) {
      const std::size_t newline = text.rfind('\n');
      const std::size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line_start > 0 || at_line_start_) && line_start < text.size() &&
          without_trailing_space(text.substr(line_start)) == 0) {
        text = text.substr(0, line_start);
      }
    }
    if (!text.empty()) emit(TokenType::kData, std::string(text), begin);
    return end + (sign == '-' || sign == '+' ? 3 : 2);
  }

  void move_to(std::size_t position) {
    pos_ = position;
    at_line_start_ = pos_ > 0 && s_[pos_ - 1] == '\n';
  }

  // Behind "TAG", spaces and a closing "%}" with its sign; nothing if that does not stand there.
  std::optional<std::size_t> behind_tag(std::size_t position, std::string_view tag, bool trims,
                                        bool allows_plus) const {
    position = skip_space(position);
    if (!at(position, tag)) return std::nullopt;
    position = skip_space(position + tag.size());
    if (at(position, "-%}")) return skip_space(position + 3);
    if (allows_plus && at(position, "+%}")) return position + 3;
    if (!at(position, "%}")) return std::nullopt;
    position += 2;
    return position + (trims && position < s_.size() && s_[position] == '\n' ? 1 : 0);
  }

  void template_text() {
    std::size_t tag = pos_;
    const auto is_opener = [&](char c) { return c == '{' || c == '%' || c == '#'; };
    while (true) {
      tag = s_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= s_.size()) {
        emit(TokenType::kData, s_.substr(pos_), pos_);
        pos_ = s_.size();
        return;
      }
      if (is_opener(s_[tag + 1])) break;
      ++tag;
    }
    const char kind = s_[tag + 1];
    const std::size_t inside = text_before_tag(pos_, tag, kind == '{');
    if (kind == '#') {
      comment(tag, inside);
    } else if (kind == '{') {
      emit(TokenType::kVariableBegin, "{{", tag);
      tag_tokens(inside, "}}", TokenType::kVariableEnd);
    } else if (const auto behind = behind_tag(inside, "raw", false, false)) {
      move_to(*behind);
      raw(tag);
    } else {
      emit(TokenType::kBlockBegin, "{%", tag);
      tag_tokens(inside, "%}", TokenType::kBlockEnd);
    }
  }

  void comment(std::size_t tag, std::size_t inside) {
    const std::size_t end = s_.find("#}", inside);
    if (end == std::string::npos) fail_at(tag, "Missing end of comment tag");
    const char sign = end > inside ? s_[end - 1] : '\0';
    std::size_t behind = end + 2;
    if (sign == '-') {
      behind = skip_space(behind);
    } else if (sign != '+' && behind < s_.size() && s_[behind] == '\n') {
      ++behind;
    }
    move_to(behind);
  }

  void raw(std::size_t tag) {
    for (std::size_t end = pos_; (end = s_.find("{%", end)) != std::string::npos; ++end) {
      const char sign = end + 2 < s_.size() ? s_[end + 2] : '\0';
      const std::size_t inside = end + (sign == '-' || sign == '+' ? 3 : 2);
      if (const auto behind = behind_tag(inside, "endraw", true, true)) {
        text_before_tag(pos_, end, false);
        move_to(*behind);
        return;
      }
    }
    fail_at(tag, "Missing end of raw directive");
  }

  void tag_tokens(std::size_t position, std::string_view close, TokenType close_type) {
    std::string open_brackets;
    pos_ = position;
    while (true) {
      pos_ = skip_space(pos_);
      if (pos_ >= s_.size()) return;  // the parser reports what is missing
      if (open_brackets.empty()) {
        const char sign = s_[pos_];
        const bool signed_end =
            (sign == '-' || (sign == '+' && close == "%}")) && at(pos_ + 1, close);
        if (signed_end || at(pos_, close)) {
          emit(close_type, std::string(close), pos_);
          std::size_t behind = pos_ + close.size() + (signed_end ? 1 : 0);
          if (signed_end && sign == '-') {
            behind = skip_space(behind);
          } else if (!signed_end && close == "%}" && behind < s_.size() && s_[behind] == '\n') {
            ++behind;
          }
          move_to(behind);
          return;
        }
      }
      if (!number() && !name() && !string()) sign(open_brackets);
    }
  }

  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

  // Digits with single "_" between them, from `position`; returns behind them.
  template <typename IsDigit>
  std::size_t behind_digits(std::size_t position, IsDigit is_wanted) const {
    const auto wanted = [&](std::size_t i) { return i < s_.size() && is_wanted(s_[i]); };
    if (!wanted(position)) return position;
    while (wanted(position) ||
           (position < s_.size() && s_[position] == '_' && wanted(position + 1))) {
      ++position;
    }
    return position;
  }

  bool number() {
    if (!is_digit(s_[pos_])) return false;
    const std::size_t whole = behind_digits(pos_, is_digit);
    std::size_t end = whole;
    if (pos_ == 0 || s_[pos_ - 1] != '.') {
      if (end + 1 < s_.size() && s_[end] == '.' && is_digit(s_[end + 1])) {
        end = behind_digits(end + 1, is_digit);
      }
      if (end < s_.size() && (s_[end] == 'e' || s_[end] == 'E')) {
        std::size_t exponent = end + 1;
        if (exponent < s_.size() && (s_[exponent] == '+' || s_[exponent] == '-')) ++exponent;
        if (exponent < s_.size() && is_digit(s_[exponent])) end = behind_digits(exponent, is_digit);
      }
    }
    if (end > whole) {
      finish_number(TokenType::kFloat, end);
      return true;
    }
    end = pos_ + 1;
    const char prefix = end < s_.size() ? static_cast<char>(s_[end] | 32) : '\0';
    const auto based = [&](auto is_wanted) {
      const std::size_t first = end + 1 < s_.size() && s_[end + 1] == '_' ? end + 2 : end + 1;
      const std::size_t behind = behind_digits(first, is_wanted);
      return behind > first ? behind : end;
    };
    if (s_[pos_] != '0') {
      end = whole;
    } else if (prefix == 'x') {
      end = based([](char c) { return is_digit(c) || ((c | 32) >= 'a' && (c | 32) <= 'f'); });
    } else if (prefix == 'o') {
      end = based([](char c) { return c >= '0' && c <= '7'; });
    } else if (prefix == 'b') {
      end = based([](char c) { return c == '0' || c == '1'; });
    } else {
      end = behind_digits(pos_, [](char c) { return c == '0'; });
    }
    finish_number(TokenType::kInteger, end);
    return true;
  }

  void finish_number(TokenType type, std::size_t end) {
    std::string text = s_.substr(pos_, end - pos_);
    std::erase(text, '_');
    emit(type, std::move(text), pos_);
    pos_ = end;
  }

  bool name() {
    std::size_t end = pos_;
    for (std::size_t next = end; end < s_.size(); end = next) {
      const char32_t c = read_utf8(s_, next);
      if (c != '_' && !is_alnum(c)) break;
    }
    if (end == pos_) return false;
    emit(TokenType::kName, s_.substr(pos_, end - pos_), pos_);
    pos_ = end;
    return true;
  }

  bool string() {
    const char quote = s_[pos_];
    if (quote != '"' && quote != '\'') return false;
    std::size_t end = pos_ + 1;
    while (end < s_.size() && s_[end] != quote) end += s_[end] == '\\' ? 2 : 1;
    if (end >= s_.size()) return false;
    emit(TokenType::kString, unescape(pos_ + 1, end), pos_);
    pos_ = end + 1;
    return true;
  }

  std::string unescape(std::size_t begin, std::size_t end) {
    std::string out;
    for (std::size_t i = begin; i < end; ++i) {
      if (s_[i] != '\\') {
        out.push_back(s_[i]);
        continue;
      }
      const char c = s_[++i];
      constexpr std::string_view kFrom = "\\'\"abfnrtv";
      constexpr std::string_view kTo = "\\'\"\a\b\f\n\r\t\v";
      const std::size_t simple = kFrom.find(c);
      if (simple != std::string_view::npos) {
        out.push_back(kTo[simple]);
      } else if (c >= '0' && c <= '7') {
        char32_t code = 0;
        std::size_t digits = 0;
        for (; digits < 3 && i < end && s_[i] >= '0' && s_[i] <= '7'; ++digits, ++i) {
          code = code * 8 + static_cast<char32_t>(s_[i] - '0');
        }
        --i;
        append_utf8(out, code);
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        append_code(out, i + 1, digits, end);
        i += digits;
      } else if (c != '\n') {
        out.push_back('\\');
        out.push_back(c);
      }
    }
    return out;
  }

  void append_code(std::string& out, std::size_t begin, std::size_t digits, std::size_t end) {
    char32_t code = 0;
    for (std::size_t i = begin; i < begin + digits; ++i) {
      const char c = i < end ? s_[i] : '\0';
      const bool is_letter = (c | 32) >= 'a' && (c | 32) <= 'f';
      if (!is_digit(c) && !is_letter) fail_at(begin, "truncated escape in a string");
      code = code * 16 + static_cast<char32_t>(is_letter ? (c | 32) - 'a' + 10 : c - '0');
    }
    if (code > 0x10FFFF) fail_at(begin, "illegal Unicode character in a string");
    append_utf8(out, code >= 0xD800 && code <= 0xDFFF ? 0xFFFD : code);
  }

  void sign(std::string& open_brackets) {
    static constexpr std::string_view kSigns[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                  "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                  ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (const std::string_view candidate : kSigns) {
      if (!at(pos_, candidate)) continue;
      const char c = candidate[0];
      if (c == '(' || c == '[' || c == '{') {
        open_brackets.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
      } else if (c == ')' || c == ']' || c == '}') {
        if (open_brackets.empty()) fail_at(pos_, std::string("unexpected '") + c + "'");
        if (open_brackets.back() != c) {
          fail_at(pos_,
                  std::string("unexpected '") + c + "', expected '" + open_brackets.back() + "'");
        }
        open_brackets.pop_back();
      }
      emit(TokenType::kOperator, std::string(candidate), pos_);
      pos_ += candidate.size();
      return;
    }
    fail_at(pos_, "unexpected char '" + s_.substr(pos_, 1) + "' at " + std::to_string(pos_));
  }

  std::string s_;
  std::size_t pos_ = 0;
  bool at_line_start_ = true;
  std::size_t line_position_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace batchmill::jinja
