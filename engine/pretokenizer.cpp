#include "engine/pretokenizer.h"

#include <array>

#include "engine/unicode.h"

namespace batchmill {
namespace {

constexpr std::array<CharClass, 128> kAsciiClasses = [] {
  std::array<CharClass, 128> classes{};
  for (char c = 'a'; c <= 'z'; ++c) classes[c] = CharClass::kLetter;
  for (char c = 'A'; c <= 'Z'; ++c) classes[c] = CharClass::kLetter;
  for (char c = '0'; c <= '9'; ++c) classes[c] = CharClass::kNumber;
  for (const char c : {'\t', '\n', '\v', '\f', '\r', ' '}) classes[c] = CharClass::kSpace;
  return classes;
}();

// A character's class and length; the end of the text has num_bytes 0.
struct ClassifiedChar {
  CharClass char_class = CharClass::kOther;
  std::size_t num_bytes = 0;

  bool is(CharClass wanted) const { return num_bytes != 0 && char_class == wanted; }
};

// Reads characters of one text. All offsets are bytes.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  ClassifiedChar at(std::size_t position) const {
    if (position >= text_.size()) return {};
    const auto byte = static_cast<unsigned char>(text_[position]);
    if (byte < 0x80) return {kAsciiClasses[byte], 1};
    const Utf8Char c = utf8_char_at(text_, position);
    return {char_class(c.code_point), c.num_bytes};
  }

  char byte_at(std::size_t position) const {
    return position < text_.size() ? text_[position] : '\0';
  }

  // The first position from `position` on whose character is not of this class.
  std::size_t skip(CharClass wanted, std::size_t position) const {
    ClassifiedChar c = at(position);
    while (c.is(wanted)) {
      position += c.num_bytes;
      c = at(position);
    }
    return position;
  }

  std::size_t skip_newlines(std::size_t position) const {
    while (byte_at(position) == '\r' || byte_at(position) == '\n') ++position;
    return position;
  }

  // Where the white space that begins at `begin` ends, where its last character starts and where
  // the last line break in it ends (`begin` if there is none).
  struct SpaceRun {
    std::size_t end;
    std::size_t last_char;
    std::size_t last_newline_end;
  };
  SpaceRun space_run(std::size_t begin) const {
    SpaceRun run{begin, begin, begin};
    for (ClassifiedChar c = at(begin); c.is(CharClass::kSpace); c = at(run.end)) {
      run.last_char = run.end;
      run.end += c.num_bytes;
      const char byte = text_[run.last_char];
      if (byte == '\r' || byte == '\n') run.last_newline_end = run.end;
    }
    return run;
  }

  // End of 's, 't, 're, 've, 'm, 'll or 'd at the apostrophe at `begin`; `begin` if it is none.
  std::size_t contraction(std::size_t begin, bool ignore_case) const {
    const auto letter = [&](std::size_t position) {
      const char c = byte_at(position);
      return ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    };
    const char first = letter(begin + 1);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return begin + 2;
    const char second = letter(begin + 2);
    if ((first == 'r' || first == 'v') && second == 'e') return begin + 3;
    if (first == 'l' && second == 'l') return begin + 3;
    // U+017F, the long s, is a case variant of s.
    if (ignore_case && text_.substr(begin + 1, 2) == "\u017F") return begin + 3;
    return begin;
  }

 private:
  std::string_view text_;
};

// End of the piece at `begin` by
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// If `single_digits`, each \p{N} is a piece of its own before the rest is split by the expression,
// so that it ends the text for what stands before it.
template <bool single_digits>
std::size_t gpt2_piece(const Scanner& scanner, std::size_t begin) {
  if (scanner.byte_at(begin) == '\'') {
    const std::size_t end = scanner.contraction(begin, false);
    if (end != begin) return end;
  }
  ClassifiedChar c = scanner.at(begin);
  if (single_digits && c.is(CharClass::kNumber)) return begin + c.num_bytes;
  std::size_t word = begin;
  if (scanner.byte_at(begin) == ' ') {
    const ClassifiedChar next = scanner.at(begin + 1);
    if (next.num_bytes != 0 && !(single_digits && next.is(CharClass::kNumber))) {
      word = begin + 1;
      c = next;
    }
  }
  if (!c.is(CharClass::kSpace)) return scanner.skip(c.char_class, word + c.num_bytes);
  const Scanner::SpaceRun run = scanner.space_run(begin);
  const ClassifiedChar after = scanner.at(run.end);
  const bool at_end = after.num_bytes == 0 || (single_digits && after.is(CharClass::kNumber));
  return at_end || run.last_char == begin ? run.end : run.last_char;
}

// End of the piece at `begin` by
//   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*
//   |\s*[\r\n]+|\s+(?!\S)|\s+
std::size_t llama3_piece(const Scanner& scanner, std::size_t begin) {
  if (scanner.byte_at(begin) == '\'') {
    const std::size_t end = scanner.contraction(begin, true);
    if (end != begin) return end;
  }
  const ClassifiedChar c = scanner.at(begin);
  const std::size_t second = begin + c.num_bytes;
  if (c.is(CharClass::kLetter)) return scanner.skip(CharClass::kLetter, second);
  if (c.is(CharClass::kNumber)) {
    std::size_t end = second;
    for (int digits = 1; digits < 3; ++digits) {
      const ClassifiedChar next = scanner.at(end);
      if (!next.is(CharClass::kNumber)) break;
      end += next.num_bytes;
    }
    return end;
  }
  const ClassifiedChar next = scanner.at(second);
  const char byte = scanner.byte_at(begin);
  if (byte != '\r' && byte != '\n' && next.is(CharClass::kLetter)) {
    return scanner.skip(CharClass::kLetter, second + next.num_bytes);
  }
  if (c.is(CharClass::kOther) || (byte == ' ' && next.is(CharClass::kOther))) {
    return scanner.skip_newlines(scanner.skip(CharClass::kOther, second));
  }
  const Scanner::SpaceRun run = scanner.space_run(begin);
  if (run.last_newline_end != begin) return run.last_newline_end;
  const bool at_end = scanner.at(run.end).num_bytes == 0;
  return at_end || run.last_char == begin ? run.end : run.last_char;
}

template <auto piece_end>
void split(std::string_view text, std::vector<std::size_t>* piece_ends) {
  const Scanner scanner(text);
  std::size_t position = 0;
  while (position < text.size()) {
    position = piece_end(scanner, position);
    piece_ends->push_back(position);
  }
}

constexpr PreTokenizer kPreTokenizers[] = {
    {"gpt-2", split<gpt2_piece<false>>, false}, {"smollm", split<gpt2_piece<true>>, false},
    {"llama-bpe", split<llama3_piece>, true},   {"llama3", split<llama3_piece>, true},
    {"llama-v3", split<llama3_piece>, true},
};

}  // namespace

const PreTokenizer* find_pre_tokenizer(std::string_view name) {
  for (const PreTokenizer& known : kPreTokenizers) {
    if (known.name == name) return &known;
  }
  return nullptr;
}

std::string known_pre_tokenizers() {
  std::string names;
  for (const PreTokenizer& known : kPreTokenizers) {
    if (!names.empty()) names += ", ";
    names += known.name;
  }
  return names;
}

}  // namespace batchmill
