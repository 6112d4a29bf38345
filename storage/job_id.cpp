#include "storage/job_id.h"

namespace batchmill {
namespace {

constexpr std::string_view kPrefix = "batch_";
constexpr std::string_view kDigits = "0123456789abcdefghjkmnpqrstvwxyz";
constexpr std::size_t kNumDigits = 26;

// 26 digits hold 130 bits; the id's 128 are preceded by two zero bits.
constexpr std::size_t kPadBits = kNumDigits * 5 - 128;

}  // namespace

std::string JobId::to_string() const {
  std::string text(kPrefix);
  std::uint32_t pending = 0;
  std::size_t num_bits = kPadBits;
  for (std::uint8_t byte : bytes) {
    pending = pending << 8 | byte;
    num_bits += 8;
    while (num_bits >= 5) {
      num_bits -= 5;
      text += kDigits[pending >> num_bits & 31];
    }
    pending &= (1u << num_bits) - 1;
  }
  return text;
}

std::optional<JobId> JobId::parse(std::string_view text) {
  if (text.size() != kPrefix.size() + kNumDigits || !text.starts_with(kPrefix)) return std::nullopt;
  JobId id;
  std::uint32_t pending = 0;
  std::size_t num_bits = 0;
  std::size_t next = 0;
  for (std::size_t i = 0; i < kNumDigits; ++i) {
    char c = text[kPrefix.size() + i];
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    const std::size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    pending = pending << 5 | static_cast<std::uint32_t>(digit);
    num_bits += 5;
    if (i == 0) {
      if (digit >> (5 - kPadBits) != 0) return std::nullopt;
      num_bits -= kPadBits;
    }
    if (num_bits >= 8) {
      num_bits -= 8;
      id.bytes[next++] = static_cast<std::uint8_t>(pending >> num_bits);
      pending &= (1u << num_bits) - 1;
    }
  }
  return id;
}

}  // namespace batchmill
