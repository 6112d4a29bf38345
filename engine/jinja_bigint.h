// Integers beyond 64 bits, with Python's rounding. Immutable values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace batchmill::jinja {

class BigInt {
 public:
  BigInt() = default;
  explicit BigInt(std::int64_t value);
  static BigInt from_digits(std::string_view digits, unsigned base = 10);  // digits only
  static BigInt from_double(double value);  // finite; truncates

  bool negative() const { return negative_; }
  bool zero() const { return limbs_.empty(); }
  std::size_t bits() const { return limbs_.size() * 32; }
  std::optional<std::int64_t> small() const;  // the value, if it fits
  double to_double() const;  // infinite when too large
  std::string to_string(unsigned base = 10) const;

  BigInt negated() const;
  friend BigInt operator+(const BigInt& a, const BigInt& b);
  friend BigInt operator-(const BigInt& a, const BigInt& b) { return a + b.negated(); }
  friend BigInt operator*(const BigInt& a, const BigInt& b);
  // Quotient rounded down, and the remainder with the divisor's sign. The divisor is not zero.
  static std::pair<BigInt, BigInt> divide(const BigInt& a, const BigInt& b);
  static int compare(const BigInt& a, const BigInt& b);  // <0, 0, >0

 private:
  using Limbs = std::vector<std::uint32_t>;  // least significant first, no leading zeros
  static int compare_limbs(const Limbs& a, const Limbs& b);
  static Limbs subtract_limbs(const Limbs& a, const Limbs& b);  // a ≥ b
  static std::uint32_t divide_small(Limbs& limbs, std::uint32_t divisor);
  static void trim(Limbs& limbs);

  Limbs limbs_;
  bool negative_ = false;
};

}  // namespace batchmill::jinja
