#include "tests/cuda/check.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string_view>

namespace batchmill::testing {

void Check::expect_near(const char* what, const std::vector<float>& got,
                        const std::vector<double>& reference, double tolerance) {
  if (got.size() != reference.size()) return fail(std::string(what) + ": another size");
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(got[i] - reference[i]);
    if (error <= tolerance * (1.0 + std::abs(reference[i]))) continue;  // false for NaN
    return fail(std::string(what) + ": element " + std::to_string(i) + " of " +
                std::to_string(got.size()) + " is " + std::to_string(got[i]) + ", not " +
                std::to_string(reference[i]));
  }
}

std::vector<float> Check::normal(std::size_t count, float deviation) {
  std::normal_distribution<float> distribution(0.0f, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = distribution(random);
  return values;
}

std::vector<std::uint16_t> bf16_of(const std::vector<float>& values) {
  std::vector<std::uint16_t> bits(values.size());
  std::transform(values.begin(), values.end(), bits.begin(),
                 [](float value) { return bf16_of(value); });
  return bits;
}
std::vector<float> float_of(const std::vector<std::uint16_t>& bits) {
  std::vector<float> values(bits.size());
  std::transform(bits.begin(), bits.end(), values.begin(),
                 [](std::uint16_t value) { return float_of(value); });
  return values;
}
std::vector<float> rounded(const std::vector<float>& values) { return float_of(bf16_of(values)); }

std::vector<NamedCheck>& all_checks() {
  static std::vector<NamedCheck> checks;
  return checks;
}

int run_checks(const std::string& filter, const std::vector<std::string>& without) {
  CudaStream stream(0);
  int passed = 0;
  int failed = 0;
  for (const NamedCheck& named : all_checks()) {
    const auto is_part = [&](const std::string& part) {
      return std::string_view(named.name).find(part) != std::string_view::npos;
    };
    if (!is_part(filter) || std::any_of(without.begin(), without.end(), is_part)) continue;
    Check check(&stream);
    try {
      named.run(check);
      stream.synchronize();
    } catch (const std::exception& error) {
      check.fail(error.what());
    }
    check.failures().empty() ? ++passed : ++failed;
    for (const std::string& failure : check.failures()) {
      std::printf("FAILED %s: %s\n", named.name, failure.c_str());
    }
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed;
}

}  // namespace batchmill::testing
