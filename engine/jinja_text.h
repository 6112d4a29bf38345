// Text of the template interpreter: UTF-8 bytes plus the spans of them that came from a message.
// Plain values; every operation that copies bytes copies their marks.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tokenizer.h"

namespace batchmill::jinja {

struct Text : MarkedText {
  Text() = default;
  explicit Text(std::string_view bytes, bool is_marked = false) { append(bytes, is_marked); }

  std::size_t size() const { return text.size(); }
  bool empty() const { return text.empty(); }
  void append(std::string_view bytes, bool is_marked = false);
  void append(const Text& other) { append(other, 0, other.size()); }
  void append(const Text& other, std::size_t begin, std::size_t end);  // bytes [begin, end)
  Text slice(std::size_t begin, std::size_t end) const;
};

// Answers whether a byte is marked; positions must not decrease from call to call.
class MarkReader {
 public:
  explicit MarkReader(const Text& text) : spans_(text.marked) {}
  bool at(std::size_t position);

 private:
  const std::vector<ByteSpan>& spans_;
  std::size_t next_ = 0;
};

// Reads the character at `position` and moves behind it. A byte that is not UTF-8 reads as one
// character U+DC80 … U+DCFF, which append_utf8 writes back as that byte.
char32_t read_utf8(std::string_view bytes, std::size_t& position);
void append_utf8(std::string& out, char32_t character);

std::size_t count_characters(std::string_view bytes);
bool is_ascii(std::string_view bytes);

// Start of each character, and the size of the text as the last entry.
std::vector<std::size_t> character_offsets(std::string_view bytes);

}  // namespace batchmill::jinja
