#include "engine/dequantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace batchmill {
namespace {

std::vector<std::byte> from_hex(const std::string& text) {
  std::vector<std::byte> bytes(text.size() / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = std::byte{static_cast<unsigned char>(std::stoi(text.substr(2 * i, 2), nullptr, 16))};
  }
  return bytes;
}

TEST(DequantizeTest, EqualsTheGgufPackageBitForBit) {
  std::ifstream stream(BATCHMILL_TEST_DATA "/dequantize.json");
  const auto cases = nlohmann::json::parse(stream);
  std::set<std::string> names;
  for (const auto& c : cases) {
    const auto name = c["name"].get<std::string>();
    SCOPED_TRACE(name);
    names.insert(name);
    const auto type = static_cast<GgmlType>(c["type"].get<std::uint32_t>());
    ASSERT_EQ(type_name(type), name);
    auto bytes = from_hex(c["bytes"].get<std::string>());
    const auto values = from_hex(c["values"].get<std::string>());
    std::vector<float> expected(values.size() / sizeof(float));
    std::memcpy(expected.data(), values.data(), values.size());
    const auto num_elements = static_cast<std::int64_t>(expected.size());
    ASSERT_EQ(row_bytes(type, num_elements), bytes.size());
    // One byte further, so that nothing relies on alignment.
    bytes.insert(bytes.begin(), std::byte{0});
    std::vector<float> output(expected.size());
    dequantize_row(type, bytes.data() + 1, num_elements, output.data());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (std::isnan(expected[i])) {  // its bits are the processor's choice
        EXPECT_TRUE(std::isnan(output[i])) << i << ": " << output[i];
      } else {
        EXPECT_EQ(std::bit_cast<std::uint32_t>(output[i]),
                  std::bit_cast<std::uint32_t>(expected[i]))
            << i << ": " << output[i] << ", expected " << expected[i];
      }
    }
  }
  std::set<std::string> supported;
  for (std::uint32_t id = 0; id < 64; ++id) {
    const GgmlTypeInfo* info = find_type_info(static_cast<GgmlType>(id));
    if (info != nullptr && info->supported) supported.insert(info->name);
  }
  EXPECT_EQ(names, supported);
  EXPECT_EQ(supported.size(), 15u);
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
