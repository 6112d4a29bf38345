#include "storage/money.h"

#include <algorithm>
#include <limits>

namespace batchmill {
namespace {

__extension__ using UnsignedPicos = unsigned __int128;

// The decimal text of `units` ÷ 10^decimals.
std::string format_decimal(bool negative, UnsignedPicos units, std::size_t decimals) {
  std::string digits;  // lowest first
  for (; units != 0; units /= 10) {
    digits += static_cast<char>('0' + static_cast<int>(units % 10));
  }
  if (digits.size() <= decimals) digits.resize(decimals + 1, '0');
  const std::size_t last = std::min(digits.find_first_not_of('0'), decimals);
  std::string text;
  if (negative) text += '-';
  for (std::size_t i = digits.size(); i-- > last;) {
    text += digits[i];
    if (i == decimals && i != last) text += '.';
  }
  return text;
}

}  // namespace

std::optional<std::int64_t> parse_price(std::string_view text) {
  constexpr std::size_t kDecimals = 6;
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  const std::size_t point = text.find('.');
  const std::string_view whole = text.substr(0, point);
  const std::string_view fraction =
      point == std::string_view::npos ? std::string_view() : text.substr(point + 1);
  if (whole.empty() || fraction.size() > kDecimals) return std::nullopt;
  if (point != std::string_view::npos && fraction.empty()) return std::nullopt;
  std::string digits(whole);
  digits += fraction;
  digits.append(kDecimals - fraction.size(), '0');
  std::int64_t value = 0;
  for (char c : digits) {
    if (c < '0' || c > '9') return std::nullopt;
    const std::int64_t digit = c - '0';
    if (value > (kMax - digit) / 10) return std::nullopt;
    value = value * 10 + digit;
  }
  return value;
}

std::string format_price(std::int64_t price) {
  const bool negative = price < 0;
  const UnsignedPicos units =
      negative ? UnsignedPicos{0} - static_cast<UnsignedPicos>(static_cast<Picos>(price))
               : static_cast<UnsignedPicos>(price);
  return format_decimal(negative, units, 6);
}

std::string format_picos(Picos amount) {
  const bool negative = amount < 0;
  UnsignedPicos units = static_cast<UnsignedPicos>(amount);
  if (negative) units = UnsignedPicos{0} - units;
  return format_decimal(negative, units, 12);
}

}  // namespace batchmill
