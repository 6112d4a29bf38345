#include "engine/bert_normalizer.h"

#include <algorithm>
#include <unordered_map>

#include "engine/code_point_table.h"
#include "engine/normalization.h"
#include "engine/normalization_tables.h"
#include "engine/unicode.h"

namespace batchmill {
namespace {

enum class BertClass : std::uint8_t { kWord, kSpace, kPunctuation, kHan };

// White space, punctuation and Han characters are disjoint.
BertClass bert_class(char32_t c) {
  static const auto table = [] {
    const CodePointTable<BertClass>::Part parts[] = {
        {bert_han_ranges(), BertClass::kHan},
        {bert_punctuation_ranges(), BertClass::kPunctuation},
        {space_ranges(), BertClass::kSpace},
    };
    return CodePointTable<BertClass>(parts);
  }();
  return table[c];
}

// What cleaning and stripping accents leave out.
enum class Omission : std::uint8_t { kNone, kCleaned, kAccent };

Omission omission(char32_t c) {
  static const auto table = [] {
    const CodePointTable<Omission>::Part parts[] = {
        {bert_accent_ranges(), Omission::kAccent},
        {bert_dropped_ranges(), Omission::kCleaned},
    };
    return CodePointTable<Omission>(parts);
  }();
  return table[c];
}

// Appends the lower case of a character that is not ASCII.
void append_lower(char32_t c, std::u32string* out) {
  static const auto table = [] {
    std::unordered_map<char32_t, const LowerCase*> lower;
    for (const LowerCase& entry : lower_cases()) lower.emplace(entry.from, &entry);
    return lower;
  }();
  const auto found = table.find(c);
  if (found == table.end()) {
    out->push_back(c);
    return;
  }
  out->push_back(found->second->first);
  if (found->second->second != 0) out->push_back(found->second->second);
}

// Cuts normalized characters into words.
class WordWriter {
 public:
  WordWriter(std::string* words, std::vector<std::size_t>* word_ends)
      : words_(words), word_ends_(word_ends) {}

  void add(char32_t c, BertClass char_class) {
    if (char_class == BertClass::kWord) {
      append_utf8(c, words_);
      return;
    }
    end_word();
    if (char_class == BertClass::kSpace) return;
    append_utf8(c, words_);
    end_word();
  }

  void end_word() {
    const std::size_t begin = word_ends_->empty() ? 0 : word_ends_->back();
    if (words_->size() != begin) word_ends_->push_back(words_->size());
  }

 private:
  std::string* words_;
  std::vector<std::size_t>* word_ends_;
};

// Handles a text that is not ASCII, step after step as the reference does.
void add_words(std::string_view text, const WordPieceRules& rules, std::u32string* code_points,
               WordWriter* writer) {
  std::string cleaned;
  cleaned.reserve(text.size());
  for (std::size_t position = 0; position < text.size();) {
    const Utf8Char c = utf8_char_at(text, position);
    position += c.num_bytes;
    const BertClass char_class = bert_class(c.code_point);
    if (rules.clean_text) {
      if (omission(c.code_point) == Omission::kCleaned) continue;
      if (char_class == BertClass::kSpace) {
        cleaned.push_back(' ');
        continue;
      }
    }
    const bool separate = rules.separate_han && char_class == BertClass::kHan;
    if (separate) cleaned.push_back(' ');
    append_utf8(c.code_point, &cleaned);
    if (separate) cleaned.push_back(' ');
  }
  code_points->clear();
  if (rules.strip_accents) {
    append_nfd(cleaned, code_points);
    std::erase_if(*code_points, [](char32_t c) { return omission(c) == Omission::kAccent; });
  } else {
    for (std::size_t position = 0; position < cleaned.size();) {
      const Utf8Char c = utf8_char_at(cleaned, position);
      code_points->push_back(c.code_point);
      position += c.num_bytes;
    }
  }
  std::u32string lower;
  for (const char32_t c : *code_points) {
    lower.clear();
    if (!rules.lowercase) {
      lower.push_back(c);
    } else if (c < 0x80) {
      lower.push_back(c >= U'A' && c <= U'Z' ? c - U'A' + U'a' : c);
    } else {
      append_lower(c, &lower);
    }
    for (const char32_t l : lower) {
      // Han characters are words only by the spaces put around them above.
      const BertClass char_class = bert_class(l);
      writer->add(l, char_class == BertClass::kHan ? BertClass::kWord : char_class);
    }
  }
}

}  // namespace

void split_bert_words(std::string_view text, const WordPieceRules& rules, std::string* words,
                      std::vector<std::size_t>* word_ends, std::u32string* code_points) {
  words->clear();
  word_ends->clear();
  WordWriter writer(words, word_ends);
  for (std::size_t position = 0; position < text.size();) {
    const auto byte = static_cast<unsigned char>(text[position]);
    if (byte < 0x80) {
      ++position;
      // A mark that follows this character is handled with it.
      const bool alone =
          position == text.size() || static_cast<unsigned char>(text[position]) < 0x80;
      if (alone) {
        if (rules.clean_text && omission(byte) == Omission::kCleaned) continue;
        const bool upper = rules.lowercase && byte >= 'A' && byte <= 'Z';
        writer.add(upper ? byte - 'A' + 'a' : byte, bert_class(byte));
        continue;
      }
      --position;
    }
    // Up to two ASCII characters in a row that stay: nothing behind them matters before.
    const auto stays = [&](std::size_t i) { return text[i] >= 0x20 && text[i] < 0x7F; };
    std::size_t end = position;
    while (end < text.size()) {
      if (end > position && end + 1 < text.size() && stays(end) && stays(end + 1)) break;
      end += utf8_char_at(text, end).num_bytes;
    }
    add_words(text.substr(position, end - position), rules, code_points, &writer);
    position = end;
  }
  writer.end_word();
}

}  // namespace batchmill
