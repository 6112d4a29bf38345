#include "storage/money.h"

#include <algorithm>

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

std::string format_picos(Picos amount) {
  const bool negative = amount < 0;
  UnsignedPicos units = static_cast<UnsignedPicos>(amount);
  if (negative) units = UnsignedPicos{0} - units;
  return format_decimal(negative, units, 12);
}

}  // namespace batchmill
