#include "engine/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "engine/unicode.h"

namespace batchmill {
namespace {

// Bytes that are printable in Latin-1 spell themselves, the others take the code points from U+0100
// on, in order. So all characters lie below U+0144 and take one or two bytes of UTF-8.
constexpr std::uint32_t kNumCodePoints = 0x144;

constexpr bool spells_itself(std::uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<std::uint16_t, 256> kCodePointOfByte = [] {
  std::array<std::uint16_t, 256> code_points{};
  std::uint16_t next = 0x100;
  for (std::uint16_t byte = 0; byte < 256; ++byte) {
    code_points[byte] = spells_itself(byte) ? byte : next++;
  }
  return code_points;
}();

constexpr std::array<std::int16_t, kNumCodePoints> kByteOfCodePoint = [] {
  std::array<std::int16_t, kNumCodePoints> bytes{};
  bytes.fill(-1);
  for (std::int16_t byte = 0; byte < 256; ++byte) bytes[kCodePointOfByte[byte]] = byte;
  return bytes;
}();

}  // namespace

bool append_bytes_of_spelling(std::string_view spelling, std::string* bytes) {
  const std::size_t size = bytes->size();
  for (std::size_t i = 0; i < spelling.size();) {
    const Utf8Part part = utf8_part_at(spelling, i);
    const bool is_char = part.state == Utf8Part::State::kCharacter;
    const char32_t c = is_char ? utf8_char_at(spelling, i).code_point : kNumCodePoints;
    if (c >= kNumCodePoints || kByteOfCodePoint[c] < 0) {
      bytes->resize(size);
      return false;
    }
    bytes->push_back(static_cast<char>(kByteOfCodePoint[c]));
    i += part.num_bytes;
  }
  return true;
}

std::optional<std::string> bytes_of_spelling(std::string_view spelling) {
  std::string bytes;
  if (!append_bytes_of_spelling(spelling, &bytes)) return std::nullopt;
  return bytes;
}

std::string spelling_of_bytes(std::string_view bytes) {
  std::string spelling;
  spelling.reserve(bytes.size() * 2);
  for (const char byte : bytes) {
    const std::uint16_t c = kCodePointOfByte[static_cast<unsigned char>(byte)];
    if (c < 0x80) {
      spelling.push_back(static_cast<char>(c));
    } else {
      spelling.push_back(static_cast<char>(0xC0 | c >> 6));
      spelling.push_back(static_cast<char>(0x80 | (c & 0x3F)));
    }
  }
  return spelling;
}

}  // namespace batchmill
