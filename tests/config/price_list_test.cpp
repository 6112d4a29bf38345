#include "config/price_list.h"

#include <gtest/gtest.h>

#include <random>

namespace batchmill {
namespace {

TEST(PriceListTest, ReadsDecimalsExactly) {
  EXPECT_EQ(parse_token_price("0"), 0);
  EXPECT_EQ(parse_token_price("0.15"), 150'000);
  EXPECT_EQ(parse_token_price("0.000001"), 1);
  EXPECT_EQ(parse_token_price("2.500000"), 2'500'000);
  EXPECT_EQ(parse_token_price("0010"), 10'000'000);
  EXPECT_EQ(parse_token_price("1000000"), kMaxPrice);
}

TEST(PriceListTest, RefusesWhatIsNoPlainDecimal) {
  for (const char* text : {"", ".", ".5", "5.", "-1", "+1", "1e3", "0.0000001", "1,5", "0x1", " 1",
                           "1 ", "nan", "inf", "1.2.3", "1000000.000001", "99999999999999999999"}) {
    EXPECT_FALSE(parse_token_price(text)) << text;
  }
}

TEST(PriceListTest, ReadsBackWhatItWrites) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 1000; ++i) {
    const auto price = static_cast<std::int64_t>(random() % (kMaxPrice + 1));
    EXPECT_EQ(parse_token_price(format_token_price(price)), price) << format_token_price(price);
  }
  EXPECT_EQ(format_token_price(150'000), "0.15");
  EXPECT_EQ(format_token_price(3'000'000), "3");
}

TEST(PriceListTest, FallsBackToTheDefaultPrice) {
  PriceList prices;
  prices.default_price.input = 1;
  prices.models["large"].input = 2;
  EXPECT_EQ(prices.price_of("large").input, 2);
  EXPECT_EQ(prices.price_of("small").input, 1);
}

}  // namespace
}  // namespace batchmill
