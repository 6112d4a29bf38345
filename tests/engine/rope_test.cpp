// Rotary and sinusoidal positions against what Hugging Face transformers computes
// (tests/data/positions, made by the scripts beside it).
#include "engine/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/positions.h"

namespace batchmill {
namespace {

nlohmann::json reference() {
  std::ifstream file(BATCHMILL_TEST_DATA "/positions/positions.json");
  return nlohmann::json::parse(file);
}

RopeConfig config_of(const nlohmann::json& c) {
  RopeConfig rope;
  rope.theta = c["theta"].get<float>();
  rope.factor = c.value("factor", 1.0f);
  rope.original_context_tokens = c.value("original", 0);
  rope.low_freq_factor = c.value("low_freq_factor", 1.0f);
  rope.high_freq_factor = c.value("high_freq_factor", 4.0f);
  rope.beta_fast = c.value("beta_fast", 32.0f);
  rope.beta_slow = c.value("beta_slow", 1.0f);
  rope.truncate = c.value("truncate", true);
  const auto type = c["rope_type"].get<std::string>();
  for (const RopeScaling scaling :
       {RopeScaling::kLinear, RopeScaling::kLlama3, RopeScaling::kDynamic, RopeScaling::kYarn}) {
    if (type == rope_scaling_name(scaling)) rope.scaling = scaling;
  }
  return rope;
}

TEST(RopeTest, HasTheReferencesFrequencies) {
  int scaled = 0;
  const nlohmann::json cases = reference();
  for (const nlohmann::json& c : cases["rotations"]) {
    SCOPED_TRACE(c.dump().substr(0, 160));
    const RopeConfig rope = config_of(c);
    const auto dim = c["dim"].get<std::int32_t>();
    const std::vector<float> frequencies = rope_frequencies(rope, dim);
    const float growth = rope_base_growth(rope, c.value("seq_len", 1) - 1);
    const auto expected = c["frequencies"].get<std::vector<double>>();
    ASSERT_EQ(frequencies.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double grown =
          frequencies[i] * std::pow(double{growth}, -2.0 * static_cast<double>(i) / (dim - 2));
      EXPECT_NEAR(grown, expected[i], 1e-5 * expected[i]) << i;
    }
    scaled += rope.scaling == RopeScaling::kNone ? 0 : 1;
  }
  EXPECT_EQ(scaled, 12);
}

TEST(RopeTest, HasTheReferencesMagnitudes) {
  int checked = 0;
  const nlohmann::json cases = reference();
  for (const nlohmann::json& c : cases["rotations"]) {
    if (c["rope_type"] != "yarn" || c.contains("given")) continue;
    const auto factor = c["factor"].get<float>();
    float magnitude = yarn_magnitude(factor);
    if (c.contains("mscale")) {
      magnitude = yarn_magnitude(factor, c["mscale"].get<float>()) /
                  yarn_magnitude(factor, c["mscale_all_dim"].get<float>());
    }
    EXPECT_NEAR(magnitude, c["attention_factor"].get<double>(), 1e-6);
    ++checked;
  }
  EXPECT_EQ(checked, 3);
  EXPECT_EQ(yarn_magnitude(1.0f), 1.0f);
  EXPECT_EQ(yarn_magnitude(0.5f), 1.0f);
}

TEST(RopeTest, OnlyDynamicScalingGrowsAndOnlyOutsideTheContext) {
  RopeConfig rope;
  rope.factor = 2.0f;
  rope.original_context_tokens = 100;
  EXPECT_EQ(rope_base_growth(rope, 5000), 1.0f);
  rope.scaling = RopeScaling::kDynamic;
  EXPECT_EQ(rope_base_growth(rope, 99), 1.0f);
  EXPECT_FLOAT_EQ(rope_base_growth(rope, 199), 3.0f);
}

TEST(PositionsTest, HasTheReferencesSinusoids) {
  const nlohmann::json sinusoids = reference()["sinusoids"];
  const auto dim = sinusoids["dim"].get<std::int32_t>();
  const auto rows = sinusoids["rows"].get<std::vector<std::vector<double>>>();
  ASSERT_EQ(rows.size(), 40u);
  std::vector<float> row(static_cast<std::size_t>(dim));
  for (std::size_t position = 0; position < rows.size(); ++position) {
    sinusoidal_position(static_cast<std::int64_t>(position), dim, row.data());
    for (std::size_t i = 0; i < row.size(); ++i) {
      EXPECT_NEAR(row[i], rows[position][i], 2e-6) << position << " " << i;
    }
  }
}

}  // namespace
}  // namespace batchmill
