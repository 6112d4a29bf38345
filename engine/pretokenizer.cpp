#include "engine/pretokenizer.h"

#include "engine/char_scanner.h"
#include "engine/deepseek_pieces.h"

namespace batchmill {
namespace {

// End of the piece at `begin` by
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// If `single_digits`, each \p{N} is a piece of its own before the rest is split by the expression,
// so that it ends the text for what stands before it.
template <bool single_digits>
std::size_t gpt2_piece(const CharScanner& scanner, std::size_t begin) {
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
  const CharScanner::SpaceRun run = scanner.space_run(begin);
  const ClassifiedChar after = scanner.at(run.end);
  const bool at_end = after.num_bytes == 0 || (single_digits && after.is(CharClass::kNumber));
  return at_end || run.last_char == begin ? run.end : run.last_char;
}

// End of the piece at `begin`, which is white space, by  \s*[\r\n]+|\s+(?!\S)|\s+  or, if
// `whole_last`, by  \s+$|\s*[\r\n]+|\s+(?!\S)|\s+
std::size_t space_piece(const CharScanner& scanner, std::size_t begin, bool whole_last = false) {
  const CharScanner::SpaceRun run = scanner.space_run(begin);
  const bool at_end = run.end == scanner.size();
  if (at_end && whole_last) return run.end;
  if (run.last_newline_end != begin) return run.last_newline_end;
  return at_end || run.last_char == begin ? run.end : run.last_char;
}

// End of the piece at `begin` by
//   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,max_digits}
//   | ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
// If `whole_last_spaces`, \s+$ comes before \s*[\r\n]+ (cl100k).
template <int max_digits, bool whole_last_spaces>
std::size_t llama3_piece(const CharScanner& scanner, std::size_t begin) {
  if (scanner.byte_at(begin) == '\'') {
    const std::size_t end = scanner.contraction(begin, true);
    if (end != begin) return end;
  }
  const ClassifiedChar c = scanner.at(begin);
  const std::size_t second = begin + c.num_bytes;
  if (c.is(CharClass::kLetter)) return scanner.skip(CharClass::kLetter, second);
  if (c.is(CharClass::kNumber)) return scanner.skip_numbers(begin, max_digits);
  const ClassifiedChar next = scanner.at(second);
  const char byte = scanner.byte_at(begin);
  if (byte != '\r' && byte != '\n' && next.is(CharClass::kLetter)) {
    return scanner.skip(CharClass::kLetter, second + next.num_bytes);
  }
  if (c.is(CharClass::kOther) || (byte == ' ' && next.is(CharClass::kOther))) {
    return scanner.skip_newlines(scanner.skip(CharClass::kOther, second));
  }
  return space_piece(scanner, begin, whole_last_spaces);
}

// End of the word at `begin` by the first two alternatives of o200k_piece; `begin` if there is
// none. With "U" for the first class and "L" for the second, letters without case and marks are in
// both.
std::size_t o200k_word(const CharScanner& scanner, std::size_t begin) {
  const auto in_both = [](CategorizedChar c) {
    return c.is(CharCategory::kOtherLetter) || c.is(CharCategory::kMark);
  };
  const CategorizedChar first = scanner.category_at(begin);
  const char byte = scanner.byte_at(begin);
  const bool leads =
      !first.is_letter() && !first.is(CharCategory::kNumber) && byte != '\r' && byte != '\n';
  const std::size_t start = leads ? begin + first.num_bytes : begin;
  std::size_t end = start;  // of the run of U
  std::size_t both_end = start;  // of the last character in it that is in L too
  CategorizedChar c = scanner.category_at(end);
  while (c.is(CharCategory::kUpperLetter) || in_both(c)) {
    end += c.num_bytes;
    if (in_both(c)) both_end = end;
    c = scanner.category_at(end);
  }
  if (c.is(CharCategory::kLowerLetter)) {  // U* L+
    while (c.is(CharCategory::kLowerLetter) || in_both(c)) {
      end += c.num_bytes;
      c = scanner.category_at(end);
    }
    return end;
  }
  if (both_end != start) return both_end;  // U* gives back what follows it
  if (leads && first.is(CharCategory::kMark)) return start;  // it does not lead but is L itself
  return end != start ? end : begin;  // U+
}

// End of the piece at `begin` by
//   [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|…|'d)?
//   |[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|…|'d)?
//   |\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
std::size_t o200k_piece(const CharScanner& scanner, std::size_t begin) {
  const std::size_t word_end = o200k_word(scanner, begin);
  if (word_end != begin) {
    const bool quote = scanner.byte_at(word_end) == '\'';
    return quote ? scanner.contraction(word_end, true) : word_end;
  }
  const ClassifiedChar c = scanner.at(begin);
  if (c.is(CharClass::kNumber)) return scanner.skip_numbers(begin, 3);
  const std::size_t second = begin + c.num_bytes;
  const bool after_space =
      scanner.byte_at(begin) == ' ' && scanner.at(second).is(CharClass::kOther);
  if (c.is(CharClass::kOther) || after_space) {
    std::size_t end = scanner.skip(CharClass::kOther, second);
    for (char byte = scanner.byte_at(end); byte == '\r' || byte == '\n' || byte == '/';
         byte = scanner.byte_at(end)) {
      ++end;
    }
    return end;
  }
  return space_piece(scanner, begin);
}

template <auto piece_end>
void split(std::string_view text, std::vector<std::size_t>* piece_ends) {
  const CharScanner scanner(text);
  std::size_t position = 0;
  while (position < text.size()) {
    position = piece_end(scanner, position);
    piece_ends->push_back(position);
  }
}

// Names that mean the same stand together; the first is the usual one.
constexpr PreTokenizer kPreTokenizers[] = {
    {"gpt-2", split<gpt2_piece<false>>},
    {"smollm", split<gpt2_piece<true>>},
    {"llama-bpe", split<llama3_piece<3, false>>, {.whole_pieces_first = true}},
    {"llama3", split<llama3_piece<3, false>>, {.whole_pieces_first = true}},
    {"llama-v3", split<llama3_piece<3, false>>, {.whole_pieces_first = true}},
    {"dbrx", split<llama3_piece<3, false>>},
    {"qwen2", split<llama3_piece<1, false>>, {.normalizes = true}},
    {"deepseek-llm", split_deepseek_llm},
    {"deepseek-v3", split_deepseek_v3},
    {"gpt-4o", split<o200k_piece>, {.whole_pieces_first = true}},
    {"cl100k", split<llama3_piece<3, true>>, {.whole_pieces_first = true}},
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
