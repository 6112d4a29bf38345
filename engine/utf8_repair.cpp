#include "engine/utf8_repair.h"

#include <string_view>

#include "engine/unicode.h"

namespace batchmill {

MarkedText replace_invalid_utf8(const MarkedText& text) {
  const std::string_view bytes = text.text;
  MarkedText repaired;
  std::size_t mark = 0;
  for (std::size_t begin = 0; begin < bytes.size();) {
    const Utf8Part part = utf8_part_at(bytes, begin);
    const std::size_t end = begin + part.num_bytes;
    const std::size_t new_begin = repaired.text.size();
    if (part.state == Utf8Part::State::kCharacter) {
      repaired.text += bytes.substr(begin, part.num_bytes);
    } else {
      repaired.text += kReplacementCharacter;
    }
    while (mark < text.marked.size() && text.marked[mark].end <= begin) ++mark;
    if (mark < text.marked.size() && text.marked[mark].begin < end) {
      std::vector<ByteSpan>& marked = repaired.marked;
      if (!marked.empty() && marked.back().end == new_begin) {
        marked.back().end = repaired.text.size();
      } else {
        marked.push_back({new_begin, repaired.text.size()});
      }
    }
    begin = end;
  }
  return repaired;
}

}  // namespace batchmill
