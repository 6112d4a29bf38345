#include "storage/money.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace batchmill {
namespace {

// Schoolbook multiplication and addition on decimal digits, lowest first: shares nothing with the
// integers under test.
std::string multiply(const std::string& a, const std::string& b) {
  std::vector<int> digits(a.size() + b.size(), 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < b.size(); ++j) {
      digits[i + j] += (a[a.size() - 1 - i] - '0') * (b[b.size() - 1 - j] - '0');
    }
  }
  int carry = 0;
  std::string text;
  for (int& digit : digits) {
    digit += carry;
    carry = digit / 10;
    text += static_cast<char>('0' + digit % 10);
  }
  std::ranges::reverse(text);
  return text;
}

// The decimal text of an integer of 10^-12 units.
std::string with_point(std::string digits) {
  digits = std::string(13, '0') + digits;
  digits = digits.substr(0, digits.size() - 12) + '.' + digits.substr(digits.size() - 12);
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.find('.') - 1));
  while (digits.back() == '0') digits.pop_back();
  if (digits.back() == '.') digits.pop_back();
  return digits;
}

TEST(MoneyTest, CostsEqualSchoolbookArithmetic) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 2'000; ++i) {
    const std::uint64_t tokens = random() >> (random() % 64);
    const auto price = static_cast<std::int64_t>(random() >> (1 + random() % 63));
    EXPECT_EQ(format_picos(cost_of(tokens, price)),
              with_point(multiply(std::to_string(tokens), std::to_string(price))));
  }
}

TEST(MoneyTest, FormatsWithoutRounding) {
  EXPECT_EQ(format_picos(0), "0");
  EXPECT_EQ(format_picos(1), "0.000000000001");
  EXPECT_EQ(format_picos(1'000'000'000'000), "1");
  EXPECT_EQ(format_picos(1'500'000'000'000), "1.5");
  EXPECT_EQ(format_picos(-1'500'000'000'000), "-1.5");
  EXPECT_EQ(format_picos(10'000'000'000'000), "10");
  EXPECT_EQ(format_picos(cost_of(UINT64_MAX, INT64_MAX)),
            "170141183460469231704017187.605319778305");
}

}  // namespace
}  // namespace batchmill
