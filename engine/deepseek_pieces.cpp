#include "engine/deepseek_pieces.h"

#include "engine/char_scanner.h"
#include "engine/code_point_table.h"

namespace batchmill {
namespace {

// ---- deepseek-llm

constexpr CodePointRange kLetters[] = {
    {0x0041, 0x005A},   {0x0061, 0x007A},   {0x00B5, 0x00B5},   {0x00C0, 0x00D6},
    {0x00D8, 0x00F6},   {0x00F8, 0x01BA},   {0x01BC, 0x01BF},   {0x01C4, 0x0293},
    {0x0295, 0x02AF},   {0x0370, 0x0373},   {0x0376, 0x0376},   {0x0377, 0x0377},
    {0x037B, 0x037D},   {0x037F, 0x037F},   {0x0386, 0x0386},   {0x0388, 0x038A},
    {0x038C, 0x038C},   {0x038E, 0x03A1},   {0x03A3, 0x03F5},   {0x03F7, 0x0481},
    {0x048A, 0x052F},   {0x0531, 0x0556},   {0x10A0, 0x10C5},   {0x13A0, 0x13F5},
    {0x13F8, 0x13FD},   {0x1C90, 0x1CBA},   {0x1CBD, 0x1CBF},   {0x1D00, 0x1D2B},
    {0x1D6B, 0x1D77},   {0x1D79, 0x1D9A},   {0x1E00, 0x1F15},   {0x1F18, 0x1F1D},
    {0x1F20, 0x1F45},   {0x1F48, 0x1F4D},   {0x1F50, 0x1F57},   {0x1F59, 0x1F59},
    {0x1F5B, 0x1F5B},   {0x1F5D, 0x1F5D},   {0x1F5F, 0x1F7D},   {0x1F80, 0x1FB4},
    {0x1FB6, 0x1FBC},   {0x1FBE, 0x1FBE},   {0x1FC2, 0x1FC4},   {0x1FC6, 0x1FCC},
    {0x1FD0, 0x1FD3},   {0x1FD6, 0x1FDB},   {0x1FE0, 0x1FEC},   {0x1FF2, 0x1FF4},
    {0x1FF6, 0x1FFC},   {0x2102, 0x2102},   {0x2107, 0x2107},   {0x210A, 0x2113},
    {0x2115, 0x2115},   {0x2119, 0x211D},   {0x2124, 0x2124},   {0x2126, 0x2126},
    {0x2128, 0x2128},   {0x212A, 0x212D},   {0x212F, 0x2134},   {0x2139, 0x2139},
    {0x213C, 0x213F},   {0x2145, 0x2149},   {0x214E, 0x214E},   {0x2183, 0x2183},
    {0x2184, 0x2184},   {0x2C00, 0x2C7B},   {0x2C7E, 0x2CE4},   {0x2CEB, 0x2CEE},
    {0x2CF2, 0x2CF2},   {0x2CF3, 0x2CF3},   {0xA640, 0xA66D},   {0xA680, 0xA69B},
    {0xA722, 0xA76F},   {0xA771, 0xA787},   {0xA78B, 0xA78E},   {0xAB70, 0xABBF},
    {0xFB00, 0xFB06},   {0xFB13, 0xFB17},   {0xFF21, 0xFF3A},   {0xFF41, 0xFF5A},
    {0x10400, 0x1044F}, {0x104B0, 0x104D3}, {0x104D8, 0x104FB}, {0x10C80, 0x10CB2},
    {0x10CC0, 0x10CF2}, {0x118A0, 0x118DF}, {0x1E900, 0x1E943},
};
constexpr CodePointRange kPunctuation[] = {
    {0x21, 0x2F},     {0x3A, 0x7E},     {0xFF01, 0xFF0F},
    {0xFF1A, 0xFF5E}, {0x2018, 0x201F}, {0x3000, 0x3002},
};
constexpr CodePointRange kEastAsian[] = {{0x0800, 0x9FA5}, {0xAC00, 0xD7FF}};

bool contains(const CodePointTable<std::uint8_t>& table, char32_t c) { return table[c] != 0; }

CodePointTable<std::uint8_t> table_of(std::span<const CodePointRange> ranges) {
  const CodePointTable<std::uint8_t>::Part part{ranges, 1};
  return CodePointTable<std::uint8_t>({&part, 1});
}

bool is_letter(char32_t c) {
  static const auto table = table_of(kLetters);
  return contains(table, c);
}

bool is_punctuation(char32_t c) {
  static const auto table = table_of(kPunctuation);
  return contains(table, c);
}

bool is_east_asian(char32_t c) {
  static const auto table = table_of(kEastAsian);
  return contains(table, c);
}

// End of the run of characters of a class that begins at `begin`.
template <auto is_member>
std::size_t run_end(const CharScanner& scanner, std::size_t begin) {
  Utf8Char c = scanner.char_at(begin);
  while (c.num_bytes != 0 && is_member(c.code_point)) {
    begin += c.num_bytes;
    c = scanner.char_at(begin);
  }
  return begin;
}

// Each function gives the end of the match at `begin`, or `begin` if there is none.

// [\r\n]
std::size_t match_newline(const CharScanner& scanner, std::size_t begin) {
  const char byte = scanner.byte_at(begin);
  return byte == '\r' || byte == '\n' ? begin + 1 : begin;
}

// \s?[class]+
template <auto is_member>
std::size_t match_with_space(const CharScanner& scanner, std::size_t begin) {
  const ClassifiedChar first = scanner.at(begin);
  if (first.is(CharClass::kSpace)) {
    const std::size_t start = begin + first.num_bytes;
    const std::size_t end = run_end<is_member>(scanner, start);
    if (end != start) return end;
  }
  return run_end<is_member>(scanner, begin);
}

// [class]+
template <auto is_member>
std::size_t match_run(const CharScanner& scanner, std::size_t begin) {
  return run_end<is_member>(scanner, begin);
}

// \p{N}
std::size_t match_number(const CharScanner& scanner, std::size_t begin) {
  return scanner.skip_numbers(begin, 1);
}

// Appends the ends of the matches in text[begin, end) and of what lies between them.
template <auto match>
void split_piece(std::string_view text, std::size_t begin, std::size_t end,
                 std::vector<std::size_t>* ends) {
  const CharScanner scanner(text.substr(0, end));
  bool in_gap = false;
  for (std::size_t position = begin; position < end;) {
    const std::size_t match_end = match(scanner, position);
    if (match_end == position) {
      in_gap = true;
      position += scanner.char_at(position).num_bytes;
      continue;
    }
    if (in_gap) ends->push_back(position);
    in_gap = false;
    ends->push_back(match_end);
    position = match_end;
  }
  if (in_gap) ends->push_back(end);
}

// \s+$ : white space at the end of a piece.
void split_last_spaces(std::string_view text, std::size_t begin, std::size_t end,
                       std::vector<std::size_t>* ends) {
  std::size_t start = end;
  while (start > begin) {
    std::size_t previous = start - 1;
    while ((text[previous] & 0xC0) == 0x80) --previous;
    if (char_class(utf8_char_at(text, previous).code_point) != CharClass::kSpace) break;
    start = previous;
  }
  if (start != begin && start != end) ends->push_back(start);
  ends->push_back(end);
}

using SplitPiece = void (*)(std::string_view, std::size_t, std::size_t, std::vector<std::size_t>*);

constexpr SplitPiece kLlmSplits[] = {
    split_piece<match_newline>,
    split_piece<match_with_space<is_letter>>,
    split_piece<match_with_space<is_punctuation>>,
    split_last_spaces,
    split_piece<match_run<is_east_asian>>,
    split_piece<match_number>,
};

// ---- deepseek-v3

bool is_kana_or_han(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF);
}

bool is_punctuation_or_symbol(CategorizedChar c) {
  return c.is(CharCategory::kPunctuation) || c.is(CharCategory::kSymbol);
}

bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// End of the match at `begin`, or `begin`, by
//   [!-/:-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+
//   |\s+(?!\S)|\s+
// (the first class without letters).
std::size_t match_v3_word(const CharScanner& scanner, std::size_t begin) {
  const auto is_word = [](CategorizedChar c) { return c.is_letter() || c.is(CharCategory::kMark); };
  const CategorizedChar first = scanner.category_at(begin);
  const std::size_t second = begin + first.num_bytes;
  const char byte = scanner.byte_at(begin);
  if (is_punctuation_or_symbol(first) && first.num_bytes == 1 &&
      is_ascii_letter(scanner.byte_at(second))) {
    std::size_t end = second + 1;
    while (is_ascii_letter(scanner.byte_at(end))) ++end;
    return end;
  }
  const bool leads =
      byte != '\r' && byte != '\n' && !first.is_letter() && !is_punctuation_or_symbol(first);
  if (is_word(first) || (leads && is_word(scanner.category_at(second)))) {
    std::size_t end = second;
    for (auto c = scanner.category_at(end); is_word(c); c = scanner.category_at(end)) {
      end += c.num_bytes;
    }
    return end;
  }
  if (is_punctuation_or_symbol(first) ||
      (byte == ' ' && is_punctuation_or_symbol(scanner.category_at(second)))) {
    std::size_t end = second;
    for (auto c = scanner.category_at(end); is_punctuation_or_symbol(c);
         c = scanner.category_at(end)) {
      end += c.num_bytes;
    }
    return scanner.skip_newlines(end);
  }
  if (!first.is(CharCategory::kSpace)) return begin;
  const CharScanner::SpaceRun run = scanner.space_run(begin);
  if (run.last_newline_end != begin) return run.last_newline_end;
  return run.end == scanner.size() || run.last_char == begin ? run.end : run.last_char;
}

}  // namespace

void split_deepseek_llm(std::string_view text, std::vector<std::size_t>* piece_ends) {
  std::vector<std::size_t> ends;
  std::vector<std::size_t> finer;
  if (!text.empty()) ends.push_back(text.size());
  for (const SplitPiece split : kLlmSplits) {
    finer.clear();
    std::size_t begin = 0;
    for (const std::size_t end : ends) {
      split(text, begin, end, &finer);
      begin = end;
    }
    ends.swap(finer);
  }
  piece_ends->insert(piece_ends->end(), ends.begin(), ends.end());
}

void split_deepseek_v3(std::string_view text, std::vector<std::size_t>* piece_ends) {
  // Runs of up to three numbers are split off, then runs of kana and han; what lies between them is
  // split as if it were the whole text.
  const CharScanner scanner(text);
  std::size_t begin = 0;  // of what lies between
  for (std::size_t position = 0; position < text.size();) {
    std::size_t end = scanner.skip_numbers(position, 3);
    if (end == position) end = run_end<is_kana_or_han>(scanner, position);
    if (end == position) {
      position += scanner.char_at(position).num_bytes;
      continue;
    }
    split_piece<match_v3_word>(text, begin, position, piece_ends);
    piece_ends->push_back(end);
    position = begin = end;
  }
  split_piece<match_v3_word>(text, begin, text.size(), piece_ends);
}

std::string deepseek_llm_letters() {
  std::string expression = "\\s?[";
  for (const CodePointRange& range : kLetters) {
    append_utf8(range.first, &expression);
    if (range.last == range.first) continue;
    expression += '-';
    append_utf8(range.last, &expression);
  }
  return expression + "]+";
}

}  // namespace batchmill
