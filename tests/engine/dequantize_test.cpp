#include "engine/dequantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

namespace batchmill {
namespace {

TEST(DequantizeTest, EqualsTheGgufPackage) {
  std::ifstream stream(BATCHMILL_TEST_DATA "/dequantize.json");
  const auto cases = nlohmann::json::parse(stream);
  ASSERT_EQ(cases.size(), 6u);
  for (const auto& c : cases) {
    SCOPED_TRACE(c["name"].get<std::string>());
    const auto type = static_cast<GgmlType>(c["type"].get<std::uint32_t>());
    const auto bytes = c["bytes"].get<std::vector<std::uint8_t>>();
    const auto values = c["values"].get<std::vector<double>>();
    // One byte further, so that nothing relies on alignment.
    std::vector<std::byte> shifted(bytes.size() + 1);
    for (std::size_t i = 0; i < bytes.size(); ++i) shifted[i + 1] = std::byte{bytes[i]};
    ASSERT_EQ(row_bytes(type, static_cast<std::int64_t>(values.size())), bytes.size());
    std::vector<float> output(values.size());
    dequantize_row(type, shifted.data() + 1, static_cast<std::int64_t>(values.size()),
                   output.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(output[i], static_cast<float>(values[i])) << i;
    }
  }
}

TEST(DequantizeTest, RoundsToNearestEvenBfloat16) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = float_from_bfloat16(static_cast<std::uint16_t>(bits));
    if (std::isnan(value)) continue;
    EXPECT_EQ(bfloat16_from_float(value), bits);
  }
  EXPECT_EQ(bfloat16_from_float(1.0f + 0x1p-8f), 0x3f80);  // tie, down to even
  EXPECT_EQ(bfloat16_from_float(1.0f + 0x1p-7f + 0x1p-8f), 0x3f82);  // tie, up to even
  EXPECT_EQ(bfloat16_from_float(1.0f + 0x1p-8f + 0x1p-20f), 0x3f81);
  EXPECT_EQ(bfloat16_from_float(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(std::isnan(
      float_from_bfloat16(bfloat16_from_float(std::numeric_limits<float>::signaling_NaN()))));
}

TEST(DequantizeTest, ConvertsEveryHalf) {
  EXPECT_EQ(float_from_half(0x3c00), 1.0f);
  EXPECT_EQ(float_from_half(0xc000), -2.0f);
  EXPECT_EQ(float_from_half(0x0001), 0x1p-24f);
  EXPECT_EQ(float_from_half(0x0400), 0x1p-14f);
  EXPECT_TRUE(std::isinf(float_from_half(0x7c00)));
  EXPECT_TRUE(std::isnan(float_from_half(0x7e00)));
  EXPECT_TRUE(std::signbit(float_from_half(0x8000)));
}

}  // namespace
}  // namespace batchmill
