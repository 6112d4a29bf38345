// Checks of kernels, the same on a GPU and on emulated threads: a program of a few lines instead of
// a test library, so that a machine with nothing but the CUDA toolkit can build it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "cuda/bf16.h"
#include "cuda/device_buffer.h"
#include "cuda/stream.h"

namespace batchmill::testing {

class Check {
 public:
  explicit Check(CudaStream* stream) : stream_(*stream) {}

  StreamHandle stream() const { return stream_.handle(); }
  CudaStream& queue() { return stream_; }
  void fail(const std::string& what) { failures_.push_back(what); }
  void expect(bool condition, const std::string& what) {
    if (!condition) fail(what);
  }
  const std::vector<std::string>& failures() const { return failures_; }

  // Every element is within `tolerance` × (1 + |reference|).
  void expect_near(const char* what, const std::vector<float>& got,
                   const std::vector<double>& reference, double tolerance);

  std::mt19937 random{7};
  std::vector<float> normal(std::size_t count, float deviation = 1.0f);

 private:
  CudaStream& stream_;
  std::vector<std::string> failures_;
};

// An array on the device with a copy here. What is not written holds NaNs.
template <typename T>
class DeviceArray {
 public:
  DeviceArray(Check* check, std::size_t count)
      : check_(*check), buffer_(std::max<std::size_t>(count, 1) * sizeof(T)), count_(count) {
    check_.queue().fill(buffer_.data(), 0xFF, buffer_.size_bytes());
  }
  DeviceArray(Check* check, const std::vector<T>& values) : DeviceArray(check, values.size()) {
    if (values.empty()) return;
    PinnedBuffer staging(count_ * sizeof(T));
    std::memcpy(staging.data(), values.data(), count_ * sizeof(T));
    check_.queue().copy_to_device(buffer_.data(), staging.data(), count_ * sizeof(T));
    check_.queue().synchronize();
  }
  T* data() const { return static_cast<T*>(buffer_.data()); }
  std::vector<T> read() const {
    PinnedBuffer staging(count_ * sizeof(T));
    check_.queue().copy_to_host(staging.data(), buffer_.data(), count_ * sizeof(T));
    check_.queue().synchronize();
    std::vector<T> values(count_);
    if (count_ > 0) std::memcpy(values.data(), staging.data(), count_ * sizeof(T));
    return values;
  }

 private:
  Check& check_;
  CudaBuffer buffer_;
  std::size_t count_;
};

using batchmill::bf16_of;
using batchmill::float_of;
std::vector<std::uint16_t> bf16_of(const std::vector<float>& values);
std::vector<float> float_of(const std::vector<std::uint16_t>& bits);
// What is left of the values after rounding to bf16.
std::vector<float> rounded(const std::vector<float>& values);

struct NamedCheck {
  const char* name;
  void (*run)(Check&);
};
std::vector<NamedCheck>& all_checks();

struct RegisterCheck {
  RegisterCheck(const char* name, void (*run)(Check&)) { all_checks().push_back({name, run}); }
};
#define KERNEL_CHECK(name)                                                     \
  static void name(batchmill::testing::Check& check);                          \
  static const batchmill::testing::RegisterCheck register_##name(#name, name); \
  static void name([[maybe_unused]] batchmill::testing::Check& check)

// Runs the checks whose names contain `filter` and none of `without`, prints those that fail and
// "N passed, N failed". Returns the number that failed.
int run_checks(const std::string& filter, const std::vector<std::string>& without = {});

}  // namespace batchmill::testing
