#include "config/price_list.h"

#include <algorithm>

namespace batchmill {
namespace {

constexpr std::int64_t kUnit = 1'000'000;
constexpr std::size_t kDecimals = 6;

bool all_digits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

const TokenPrice& PriceList::price_of(const std::string& model) const {
  const auto found = models.find(model);
  return found == models.end() ? default_price : found->second;
}

std::optional<std::int64_t> parse_token_price(std::string_view text) {
  const std::size_t point = text.find('.');
  const std::string_view whole = text.substr(0, point);
  if (!all_digits(whole) || whole.size() > 12) return std::nullopt;
  std::string digits(whole);
  std::size_t decimals = 0;
  if (point != std::string_view::npos) {
    const std::string_view fraction = text.substr(point + 1);
    if (!all_digits(fraction) || fraction.size() > kDecimals) return std::nullopt;
    decimals = fraction.size();
    digits += fraction;
  }
  digits.append(kDecimals - decimals, '0');
  std::int64_t price = 0;  // at most 18 digits, so it fits
  for (const char digit : digits) price = price * 10 + (digit - '0');
  if (price > kMaxPrice) return std::nullopt;
  return price;
}

std::string format_token_price(std::int64_t price) {
  std::string text = std::to_string(price / kUnit);
  std::string fraction = std::to_string(kUnit + price % kUnit).substr(1);
  fraction.erase(fraction.find_last_not_of('0') + 1);
  return fraction.empty() ? text : text + "." + fraction;
}

}  // namespace batchmill
