// Which of the devices that CUDA numbers the backend uses. Plain functions; no device is involved.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace batchmill {

inline constexpr int kMinComputeCapability = 8;  // bf16 matrix instructions, asynchronous copies

// CUDA's numbers of those that can be used, from the major compute capability of each; our numbers
// are places in this list. What is too old is left out, wherever it stands.
inline std::vector<int> usable_devices(std::span<const int> majors) {
  std::vector<int> numbers;
  for (std::size_t i = 0; i < majors.size(); ++i) {
    if (majors[i] >= kMinComputeCapability) numbers.push_back(static_cast<int>(i));
  }
  return numbers;
}

}  // namespace batchmill
