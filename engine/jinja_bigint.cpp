#include "engine/jinja_bigint.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace batchmill::jinja {

BigInt::BigInt(std::int64_t value) : negative_(value < 0) {
  std::uint64_t magnitude =
      negative_ ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
  for (; magnitude != 0; magnitude >>= 32) limbs_.push_back(static_cast<std::uint32_t>(magnitude));
}

BigInt BigInt::from_digits(std::string_view digits, unsigned base) {
  BigInt out;
  for (const char c : digits) {
    std::uint64_t carry = static_cast<std::uint64_t>(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    for (std::uint32_t& limb : out.limbs_) {
      carry += static_cast<std::uint64_t>(limb) * base;
      limb = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
    if (carry != 0) out.limbs_.push_back(static_cast<std::uint32_t>(carry));
  }
  return out;
}

BigInt BigInt::from_double(double value) {
  int exponent = 0;
  const double fraction =
      std::frexp(std::trunc(value), &exponent);  // value = fraction · 2^exponent
  BigInt out(static_cast<std::int64_t>(std::ldexp(fraction, std::min(exponent, 62))));
  for (int i = 62; i < exponent; ++i) out = out + out;
  return out;
}

std::optional<std::int64_t> BigInt::small() const {
  if (limbs_.size() > 2) return std::nullopt;
  std::uint64_t magnitude = 0;
  for (std::size_t i = limbs_.size(); i-- > 0;) magnitude = (magnitude << 32) | limbs_[i];
  const std::uint64_t limit = std::uint64_t{1} << 63;
  if (magnitude > limit || (magnitude == limit && !negative_)) return std::nullopt;
  return static_cast<std::int64_t>(negative_ ? 0 - magnitude : magnitude);
}

double BigInt::to_double() const {
  // The top 64 bits, with what is below them folded into the last bit, round once as a whole.
  if (limbs_.empty()) return 0.0;
  std::uint64_t top = 0;
  std::size_t shift = 0;
  bool sticky = false;
  const std::size_t total = bits() - static_cast<std::size_t>(__builtin_clz(limbs_.back()));
  if (total > 64) shift = total - 64;
  for (std::size_t i = 0; i < total; ++i) {
    const bool bit = ((limbs_[i / 32] >> (i % 32)) & 1U) != 0;
    if (i < shift) {
      sticky = sticky || bit;
    } else if (bit) {
      top |= std::uint64_t{1} << (i - shift);
    }
  }
  if (sticky) top |= 1;
  if (shift > 2000) {
    const double infinity = std::numeric_limits<double>::infinity();
    return negative_ ? -infinity : infinity;
  }
  const double value = std::ldexp(static_cast<double>(top), static_cast<int>(shift));
  return negative_ ? -value : value;
}

std::string BigInt::to_string(unsigned base) const {
  if (limbs_.empty()) return "0";
  std::string out;
  for (Limbs rest = limbs_; !rest.empty();) {
    out.push_back("0123456789abcdefghijklmnopqrstuvwxyz"[divide_small(rest, base)]);
  }
  if (negative_) out.push_back('-');
  std::reverse(out.begin(), out.end());
  return out;
}

BigInt BigInt::negated() const {
  BigInt out = *this;
  out.negative_ = !negative_ && !limbs_.empty();
  return out;
}

BigInt operator+(const BigInt& a, const BigInt& b) {
  BigInt out;
  if (a.negative_ != b.negative_) {
    const bool a_larger = BigInt::compare_limbs(a.limbs_, b.limbs_) >= 0;
    out.limbs_ = a_larger ? BigInt::subtract_limbs(a.limbs_, b.limbs_)
                          : BigInt::subtract_limbs(b.limbs_, a.limbs_);
    out.negative_ = (a_larger ? a.negative_ : b.negative_) && !out.limbs_.empty();
    return out;
  }
  std::uint64_t carry = 0;
  for (std::size_t i = 0; i < std::max(a.limbs_.size(), b.limbs_.size()) || carry != 0; ++i) {
    if (i < a.limbs_.size()) carry += a.limbs_[i];
    if (i < b.limbs_.size()) carry += b.limbs_[i];
    out.limbs_.push_back(static_cast<std::uint32_t>(carry));
    carry >>= 32;
  }
  out.negative_ = a.negative_;
  return out;
}

BigInt operator*(const BigInt& a, const BigInt& b) {
  BigInt out;
  out.limbs_.assign(a.limbs_.size() + b.limbs_.size(), 0);
  for (std::size_t i = 0; i < a.limbs_.size(); ++i) {
    std::uint64_t carry = 0;
    for (std::size_t j = 0; j < b.limbs_.size() || carry != 0; ++j) {
      carry += out.limbs_[i + j];
      if (j < b.limbs_.size()) carry += static_cast<std::uint64_t>(a.limbs_[i]) * b.limbs_[j];
      out.limbs_[i + j] = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
  }
  BigInt::trim(out.limbs_);
  out.negative_ = a.negative_ != b.negative_ && !out.limbs_.empty();
  return out;
}

std::pair<BigInt, BigInt> BigInt::divide(const BigInt& a, const BigInt& b) {
  BigInt quotient;
  BigInt rest;
  quotient.limbs_.assign(a.limbs_.size(), 0);
  for (std::size_t bit = a.bits(); bit-- > 0;) {
    std::uint32_t carry = (a.limbs_[bit / 32] >> (bit % 32)) & 1U;
    for (std::uint32_t& limb : rest.limbs_) {
      const std::uint32_t out = limb >> 31;
      limb = (limb << 1) | carry;
      carry = out;
    }
    if (carry != 0) rest.limbs_.push_back(carry);
    if (compare_limbs(rest.limbs_, b.limbs_) >= 0) {
      rest.limbs_ = subtract_limbs(rest.limbs_, b.limbs_);
      quotient.limbs_[bit / 32] |= 1U << (bit % 32);
    }
  }
  trim(quotient.limbs_);
  quotient.negative_ = a.negative_ != b.negative_ && !quotient.limbs_.empty();
  rest.negative_ = a.negative_ && !rest.limbs_.empty();
  if (!rest.limbs_.empty() && a.negative_ != b.negative_) {
    quotient = quotient - BigInt(1);
    rest = rest + b;
  }
  return {quotient, rest};
}

int BigInt::compare(const BigInt& a, const BigInt& b) {
  if (a.negative_ != b.negative_) return a.negative_ ? -1 : 1;
  const int order = compare_limbs(a.limbs_, b.limbs_);
  return a.negative_ ? -order : order;
}

int BigInt::compare_limbs(const Limbs& a, const Limbs& b) {
  if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
  for (std::size_t i = a.size(); i-- > 0;) {
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  }
  return 0;
}

BigInt::Limbs BigInt::subtract_limbs(const Limbs& a, const Limbs& b) {
  Limbs out = a;
  std::uint64_t borrow = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t taken = borrow + (i < b.size() ? b[i] : 0);
    borrow = out[i] < taken ? 1 : 0;
    out[i] = static_cast<std::uint32_t>(out[i] - taken);
  }
  trim(out);
  return out;
}

std::uint32_t BigInt::divide_small(Limbs& limbs, std::uint32_t divisor) {
  std::uint64_t rest = 0;
  for (std::size_t i = limbs.size(); i-- > 0;) {
    rest = (rest << 32) | limbs[i];
    limbs[i] = static_cast<std::uint32_t>(rest / divisor);
    rest %= divisor;
  }
  trim(limbs);
  return static_cast<std::uint32_t>(rest);
}

void BigInt::trim(Limbs& limbs) {
  while (!limbs.empty() && limbs.back() == 0) limbs.pop_back();
}

}  // namespace batchmill::jinja
