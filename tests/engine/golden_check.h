// Holds a model to the tolerances that the reference data's README derives.
// Tests link batchmill_golden.
#pragma once

#include <gtest/gtest.h>

#include <iostream>
#include <string>

#include "tests/engine/golden_agreement.h"

namespace batchmill::testing {

// Limits of the members of Agreement.
struct Tolerance {
  double largest_error = 0;
  double mean_rms = 0;
  double flip_margin = 0;
  double agreement = 1;  // share of best tokens that are equal
  double logprob_error = 0;
};

inline constexpr Tolerance kF32{0.001, 0.0002, 0.0, 1.0, 0.001};
inline constexpr Tolerance kTinyBf16{0.4, 0.05, 0.2, 0.95, 0.05};
// A small error can choose another expert.
inline constexpr Tolerance kTinyExpertsBf16{1e9, 0.08, 1e9, 0.90, 0.1};
inline constexpr Tolerance kTinyExpertsInt8{1e9, 0.6, 1e9, 0.80, 0.3};
// Rows of 64 have few numbers to hide an error in.
inline constexpr Tolerance kTinyInt8{0.5, 0.1, 0.4, 0.88, 0.08};
inline constexpr Tolerance kRealBf16{0.25, 0.03, 0.05, 0.98, 0.03};
inline constexpr Tolerance kRealInt8{0.3, 0.3, 0.15, 0.95, 0.06};
inline constexpr Tolerance kRealInt8Cache{0.3, 0.3, 0.2, 0.95, 0.06};  // int8 keys and values too

// With the type's default cache.
inline Tolerance tolerance_of(CpuDType dtype, bool published) {
  if (dtype == CpuDType::kF32) return kF32;
  if (!published) return dtype == CpuDType::kInt8 ? kTinyInt8 : kTinyBf16;
  return dtype == CpuDType::kInt8 ? kRealInt8Cache : kRealBf16;
}

inline void expect_agreement(const Agreement& agreement, const Tolerance& tolerance) {
  std::cout << "largest logit error " << agreement.largest_error << ", rms " << agreement.mean_rms
            << ", best tokens equal " << agreement.num_equal << " of " << agreement.num_best
            << " (margin " << agreement.flip_margin << "), log-probability "
            << agreement.logprob_error << "\n";
  EXPECT_GT(agreement.num_best, 0);
  EXPECT_LE(agreement.largest_error, tolerance.largest_error);
  EXPECT_LE(agreement.mean_rms, tolerance.mean_rms);
  EXPECT_LE(agreement.flip_margin, tolerance.flip_margin);
  EXPECT_GE(static_cast<double>(agreement.num_equal),
            tolerance.agreement * static_cast<double>(agreement.num_best));
  EXPECT_LE(agreement.logprob_error, tolerance.logprob_error);
}

// Runs a model through all cases of the file `golden`.
inline void check_golden(const ModelFiles& model, const std::string& golden, CpuDType dtype,
                         const Tolerance& tolerance, InstructionSet set = best_instruction_set(),
                         CpuDType kv_dtype = CpuDType::kAuto) {
  const Agreement agreement = measure_agreement(model, golden, dtype, set, kv_dtype);
  expect_agreement(agreement, tolerance);
  for (const std::string& line : agreement.products) {
    EXPECT_EQ(line.find("ref"), std::string::npos) << line;
  }
}

}  // namespace batchmill::testing
