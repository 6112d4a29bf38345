// What tokens cost. Prices are written as decimal texts per 1,000,000 tokens with at most 6
// decimals and kept as integers of 10^-6 units, so no amount is ever rounded.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace batchmill {

// Integers of 10^-6 currency units per 1,000,000 tokens.
struct TokenPrice {
  std::int64_t input = 0;
  std::int64_t cached_input = 0;  // prompt tokens whose KV came from the prefix cache
  std::int64_t output = 0;
};

// One version of all prices. What was billed keeps the version it was billed with.
struct PriceList {
  std::string version = "unpriced";
  std::string currency = "USD";
  TokenPrice default_price;
  std::map<std::string, TokenPrice> models;  // by configured model name

  // The model's own price, else the default.
  const TokenPrice& price_of(const std::string& model) const;
};

// "0.15" → 150,000. Absent: not a plain decimal (no sign, no exponent), more than 6 decimals, or
// over kMaxPrice.
inline constexpr std::int64_t kMaxPrice = 1'000'000'000'000;  // a million units per million tokens
std::optional<std::int64_t> parse_token_price(std::string_view text);

// The shortest text that parse_token_price reads back as `price`.
std::string format_token_price(std::int64_t price);

}  // namespace batchmill
