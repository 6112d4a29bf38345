#include "engine/jinja_strings.h"

#include <algorithm>

#include "engine/jinja_runtime.h"
#include "engine/jinja_unicode.h"

namespace batchmill::jinja {
namespace {

// Start of the character that ends before `end`.
std::size_t previous(const std::string& s, std::size_t end) {
  std::size_t begin = end - 1;
  while (begin > 0 && end - begin < 4 && (static_cast<unsigned char>(s[begin]) & 0xC0U) == 0x80U) {
    --begin;
  }
  std::size_t next = begin;
  read_utf8(s, next);
  return next == end ? begin : end - 1;
}

bool is_line_end(char32_t c) {
  return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

std::vector<Text> split_space(const Text& text, std::int64_t max_splits) {
  std::vector<Text> out;
  const std::string& s = text.text;
  for (std::size_t i = 0; i < s.size();) {
    std::size_t next = i;
    if (is_space(read_utf8(s, next))) {
      i = next;
      continue;
    }
    std::size_t end = i;
    if (max_splits >= 0 && static_cast<std::int64_t>(out.size()) == max_splits) {
      out.push_back(text.slice(i, s.size()));
      break;
    }
    for (next = i; next < s.size() && !is_space(read_utf8(s, next));) end = next;
    charge();
    out.push_back(text.slice(i, end));
    i = end;
  }
  return out;
}

std::vector<Text> split_space_from_right(const Text& text, std::int64_t max_splits) {
  std::vector<Text> out;
  const std::string& s = text.text;
  std::size_t end = strip(text, Side::kRight, nullptr).size();
  while (end > 0) {
    if (static_cast<std::int64_t>(out.size()) == max_splits) {
      out.push_back(text.slice(0, end));
      break;
    }
    std::size_t begin = end;
    while (begin > 0) {
      const std::size_t before = previous(s, begin);
      std::size_t next = before;
      if (is_space(read_utf8(s, next))) break;
      begin = before;
    }
    charge();
    out.push_back(text.slice(begin, end));
    end = strip(text.slice(0, begin), Side::kRight, nullptr).size();
  }
  std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace

Text strip(const Text& text, Side side, const Text* characters) {
  charge_bytes(text.size());
  std::u32string wanted;
  if (characters != nullptr) {
    for (std::size_t i = 0; i < characters->size();) {
      wanted.push_back(read_utf8(characters->text, i));
    }
  }
  const auto goes = [&](char32_t c) {
    return characters == nullptr ? is_space(c) : wanted.find(c) != std::u32string::npos;
  };
  std::size_t begin = 0;
  std::size_t end = text.size();
  while (side != Side::kRight && begin < end) {
    std::size_t next = begin;
    if (!goes(read_utf8(text.text, next))) break;
    charge(wanted.size() / 32);
    begin = next;
  }
  while (side != Side::kLeft && end > begin) {
    const std::size_t before = previous(text.text, end);
    std::size_t next = before;
    if (!goes(read_utf8(text.text, next))) break;
    charge(wanted.size() / 32);
    end = before;
  }
  return text.slice(begin, end);
}

Text change_case(const Text& text, Case to) {
  charge_bytes(text.size() * 3);
  Text out;
  MarkReader marks(text);
  bool starts_word = true;
  for (std::size_t i = 0; i < text.size();) {
    const bool marked = marks.at(i);
    const char32_t c = read_utf8(text.text, i);
    std::string mapped;
    switch (to) {
      case Case::kUpper:
        append_upper(mapped, c);
        break;
      case Case::kLower:
        append_lower(mapped, c);
        break;
      case Case::kFold:
        append_folded(mapped, c);
        break;
      case Case::kSwap:
        is_upper(c) ? append_lower(mapped, c) : append_upper(mapped, c);
        break;
      case Case::kTitle:
        starts_word ? append_title(mapped, c) : append_lower(mapped, c);
        starts_word = !is_cased(c);
        break;
      case Case::kCapitalize:
        starts_word ? append_title(mapped, c) : append_lower(mapped, c);
        starts_word = false;
        break;
    }
    out.append(mapped, marked);
  }
  return out;
}

Text replace(const Text& text, const Text& from, const Text& to, std::int64_t count) {
  charge_bytes(text.size());
  Text out;
  const std::string& s = text.text;
  std::size_t copied = 0;
  std::size_t search = 0;
  for (std::int64_t done = 0; count < 0 || done < count; ++done) {
    const std::size_t found = s.find(from.text, search);
    if (found == std::string::npos) break;
    charge();
    charge_bytes(to.size());
    check_size(out.size() + found - copied + to.size());
    out.append(text, copied, found);
    out.append(to);
    copied = found + from.size();
    search = copied;
    if (from.empty()) {  // stands before every character and at the end
      if (found >= s.size()) break;
      std::size_t next = found;
      read_utf8(s, next);
      out.append(text, found, next);
      copied = search = next;
    }
  }
  out.append(text, copied, s.size());
  return out;
}

std::vector<Text> split(const Text& text, const Text* separator, std::int64_t max_splits,
                        bool from_right) {
  charge_bytes(text.size());
  if (separator == nullptr) {
    return from_right && max_splits >= 0 ? split_space_from_right(text, max_splits)
                                         : split_space(text, max_splits);
  }
  if (separator->empty()) value_error("empty separator");
  const std::string& s = text.text;
  const std::string& by = separator->text;
  std::vector<Text> out;
  const auto may_split = [&] {
    return max_splits < 0 || static_cast<std::int64_t>(out.size()) < max_splits;
  };
  if (!from_right) {
    std::size_t begin = 0;
    for (std::size_t found = s.find(by); may_split() && found != std::string::npos;
         found = s.find(by, begin)) {
      charge();
      out.push_back(text.slice(begin, found));
      begin = found + by.size();
    }
    out.push_back(text.slice(begin, s.size()));
    return out;
  }
  std::size_t end = s.size();
  while (may_split() && end >= by.size()) {
    const std::size_t found = s.rfind(by, end - by.size());
    if (found == std::string::npos) break;
    charge();
    out.push_back(text.slice(found + by.size(), end));
    end = found;
  }
  out.push_back(text.slice(0, end));
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<Text> split_lines(const Text& text, bool keep_ends) {
  charge_bytes(text.size());
  std::vector<Text> out;
  const std::string& s = text.text;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < s.size();) {
    const std::size_t at = i;
    const char32_t c = read_utf8(s, i);
    if (!is_line_end(c)) continue;
    if (c == '\r' && i < s.size() && s[i] == '\n') ++i;
    charge();
    out.push_back(text.slice(begin, keep_ends ? i : at));
    begin = i;
  }
  if (begin < s.size()) out.push_back(text.slice(begin, s.size()));
  return out;
}

}  // namespace batchmill::jinja
