#include "tools/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <streambuf>

#include "queue/json_reader.h"

namespace batchmill {
namespace {

// Of a valid sequence.
std::uint32_t code_point(std::string_view sequence) {
  const auto first = static_cast<unsigned char>(sequence.front());
  if (sequence.size() == 1) return first;
  std::uint32_t code = first & (0x7Fu >> sequence.size());
  for (const char c : sequence.substr(1)) code = code << 6 | (static_cast<unsigned char>(c) & 0x3F);
  return code;
}

bool acts_on_a_terminal(std::uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x200E || code == 0x200F ||
         (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069) || code == 0xFEFF;
}

std::string escaped(std::uint32_t code) {
  if (code == '\n') return "\\n";
  if (code == '\r') return "\\r";
  if (code == '\t') return "\\t";
  return code < 0x80 ? fmt::format("\\x{:02x}", code) : fmt::format("\\u{:04x}", code);
}

// `keep_newlines`: they are no part of what others wrote.
std::string without_control(std::string_view text, bool keep_newlines) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_sequence_length(text);
    const std::string_view sequence = text.substr(0, std::max<std::size_t>(length, 1));
    if (length == 0) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text.front()));
    } else if (sequence == "\n" && keep_newlines) {
      out += sequence;
    } else if (const std::uint32_t code = code_point(sequence); acts_on_a_terminal(code)) {
      out += escaped(code);
    } else {
      out += sequence;
    }
    text.remove_prefix(sequence.size());
  }
  return out;
}

// Passes on whole characters: what is written may end within one.
class PrintableBuffer : public std::streambuf {
 public:
  explicit PrintableBuffer(std::streambuf* target) : target_(target) {}

 protected:
  int_type overflow(int_type c) override {
    if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
    const char byte = traits_type::to_char_type(c);
    return xsputn(&byte, 1) == 1 ? c : traits_type::eof();
  }
  std::streamsize xsputn(const char* bytes, std::streamsize size) override {
    begun_.append(bytes, static_cast<std::size_t>(size));
    const std::size_t whole = begun_.size() - unfinished_bytes();
    const bool passed = pass_on(std::string_view(begun_).substr(0, whole));
    begun_.erase(0, whole);
    return passed ? size : 0;
  }
  int sync() override {
    const bool passed = pass_on(begun_);
    begun_.clear();
    return passed ? target_->pubsync() : -1;
  }

 private:
  // Bytes at the end that begin a character.
  std::size_t unfinished_bytes() const {
    constexpr std::size_t kMostBytes = 4;
    for (std::size_t back = 1; back < kMostBytes && back <= begun_.size(); ++back) {
      const auto byte = static_cast<unsigned char>(begun_[begun_.size() - back]);
      if ((byte & 0xC0) == 0x80) continue;
      const std::size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
      return length > back ? back : 0;
    }
    return 0;
  }
  bool pass_on(std::string_view bytes) {
    const std::string text = printable_lines(bytes);
    const auto size = static_cast<std::streamsize>(text.size());
    return target_->sputn(text.data(), size) == size;
  }

  std::streambuf* const target_;
  std::string begun_;
};

}  // namespace

std::string printable(std::string_view text) { return without_control(text, false); }

std::string printable_lines(std::string_view text) { return without_control(text, true); }

void make_messages_printable() {
  // Used until the process has ended.
  static auto* const buffer = new PrintableBuffer(std::cerr.rdbuf());
  std::cerr.rdbuf(buffer);
}

}  // namespace batchmill
