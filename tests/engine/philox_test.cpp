#include "engine/philox.h"

#include <gtest/gtest.h>

namespace batchmill {
namespace {

// The known answers that the paper's authors publish with their library (Random123).
TEST(PhiloxTest, GivesThePublishedAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, UniformNumbersDependOnEveryArgumentAndLieInTheUnitInterval) {
  double sum = 0.0;
  for (std::uint32_t position = 0; position < 100'000; ++position) {
    const double u = philox_uniform(7, 0, position);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
  }
  EXPECT_NEAR(sum / 100'000, 0.5, 0.005);
  const double u = philox_uniform(7, 0, 0);
  EXPECT_NE(u, philox_uniform(8, 0, 0));
  EXPECT_NE(u, philox_uniform(7 + (1ull << 32), 0, 0));
  EXPECT_NE(u, philox_uniform(7, 1, 0));
  EXPECT_NE(u, philox_uniform(7, 0, 1));
}

}  // namespace
}  // namespace batchmill
