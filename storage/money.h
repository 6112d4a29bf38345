// Exact money: integers all the way. Pure functions.
#pragma once

#include <cstdint>
#include <string>

namespace batchmill {

// Money in 10^-12 units of the price's currency; never rounded.
__extension__ using Picos = __int128;

// What a model's tokens cost: integers of 10^-6 units per 1,000,000 tokens, so one token costs that
// many picos. `version` names the price list.
struct Price {
  std::string version;
  std::string currency = "USD";
  std::int64_t input = 0;
  std::int64_t cached_input = 0;
  std::int64_t output = 0;
  bool operator==(const Price&) const = default;
};

// All decimals that count, never rounded: 0 → "0", 1 → "0.000000000001", −1.5 × 10^12 → "-1.5".
std::string format_picos(Picos amount);

inline Picos cost_of(std::uint64_t tokens, std::int64_t price) {
  return static_cast<Picos>(tokens) * price;
}

}  // namespace batchmill
