#include "engine/jinja_text.h"

#include <algorithm>

namespace batchmill::jinja {
namespace {

void add_span(std::vector<ByteSpan>& spans, std::size_t begin, std::size_t end) {
  if (begin == end) return;
  if (!spans.empty() && spans.back().end == begin) {
    spans.back().end = end;
  } else {
    spans.push_back({begin, end});
  }
}

}  // namespace

void Text::append(std::string_view bytes, bool is_marked) {
  const std::size_t begin = text.size();
  text.append(bytes);
  if (is_marked) add_span(marked, begin, text.size());
}

void Text::append(const Text& other, std::size_t begin, std::size_t end) {
  if (&other == this) {
    append(other.slice(begin, end));
    return;
  }
  const std::size_t base = text.size();
  text.append(other.text, begin, end - begin);
  auto span = std::partition_point(other.marked.begin(), other.marked.end(),
                                   [&](const ByteSpan& s) { return s.end <= begin; });
  for (; span != other.marked.end() && span->begin < end; ++span) {
    add_span(marked, base + std::max(span->begin, begin) - begin,
             base + std::min(span->end, end) - begin);
  }
}

Text Text::slice(std::size_t begin, std::size_t end) const {
  Text out;
  out.append(*this, begin, end);
  return out;
}

bool MarkReader::at(std::size_t position) {
  while (next_ < spans_.size() && spans_[next_].end <= position) ++next_;
  return next_ < spans_.size() && spans_[next_].begin <= position;
}

char32_t read_utf8(std::string_view bytes, std::size_t& position) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char first = byte(position);
  if (first < 0x80) {
    ++position;
    return first;
  }
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  char32_t value = first & (0xFFU >> (length + 1));
  bool valid = first >= 0xC2 && first <= 0xF4 && position + length <= bytes.size();
  for (std::size_t i = 1; valid && i < length; ++i) {
    valid = (byte(position + i) & 0xC0U) == 0x80U;
    value = (value << 6) | (byte(position + i) & 0x3FU);
  }
  if (valid && ((length == 3 && value < 0x800) || (length == 4 && value < 0x10000) ||
                value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF))) {
    valid = false;
  }
  if (!valid) {
    ++position;
    return 0xDC00U + first;
  }
  position += length;
  return value;
}

void append_utf8(std::string& out, char32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c));
  } else if (c >= 0xDC80 && c <= 0xDCFF) {
    out.push_back(static_cast<char>(c - 0xDC00U));
  } else if (c < 0x800) {
    out.push_back(static_cast<char>(0xC0U | (c >> 6)));
    out.push_back(static_cast<char>(0x80U | (c & 0x3FU)));
  } else if (c < 0x10000) {
    out.push_back(static_cast<char>(0xE0U | (c >> 12)));
    out.push_back(static_cast<char>(0x80U | ((c >> 6) & 0x3FU)));
    out.push_back(static_cast<char>(0x80U | (c & 0x3FU)));
  } else {
    out.push_back(static_cast<char>(0xF0U | (c >> 18)));
    out.push_back(static_cast<char>(0x80U | ((c >> 12) & 0x3FU)));
    out.push_back(static_cast<char>(0x80U | ((c >> 6) & 0x3FU)));
    out.push_back(static_cast<char>(0x80U | (c & 0x3FU)));
  }
}

std::size_t count_characters(std::string_view bytes) {
  if (is_ascii(bytes)) return bytes.size();
  std::size_t count = 0;
  for (std::size_t i = 0; i < bytes.size(); ++count) read_utf8(bytes, i);
  return count;
}

bool is_ascii(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::vector<std::size_t> character_offsets(std::string_view bytes) {
  std::vector<std::size_t> offsets;
  offsets.reserve(bytes.size() + 1);
  for (std::size_t i = 0; i < bytes.size();) {
    offsets.push_back(i);
    read_utf8(bytes, i);
  }
  offsets.push_back(bytes.size());
  return offsets;
}

}  // namespace batchmill::jinja
