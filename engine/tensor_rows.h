// Reads one tensor row by row while weights are loaded. Released when destroyed, and now and then
// on the way, so that a large tensor's part of the file is never in memory as a whole.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/tensor_source.h"

namespace batchmill {

class TensorRows {
 public:
  // The tensor must be there.
  TensorRows(const TensorSource& tensors, const std::string& name)
      : tensors_(tensors),
        info_(*tensors.find(name)),
        row_bytes_(info_.bytes / static_cast<std::size_t>(info_.rows)) {}
  ~TensorRows() { tensors_.release(info_); }
  TensorRows(const TensorRows&) = delete;
  TensorRows& operator=(const TensorRows&) = delete;

  std::int64_t cols() const { return info_.cols; }

  // From any thread.
  void read(std::int64_t row, float* output) const {
    tensors_.read_row(info_, row, output);
    if (unreleased_bytes_.fetch_add(row_bytes_) + row_bytes_ < kReleaseBytes) return;
    unreleased_bytes_ = 0;
    tensors_.release(info_);
  }
  std::vector<float> row(std::int64_t index) const {
    std::vector<float> values(static_cast<std::size_t>(cols()));
    read(index, values.data());
    return values;
  }

 private:
  static constexpr std::size_t kReleaseBytes = 1 << 20;

  const TensorSource& tensors_;
  const TensorInfo& info_;
  std::size_t row_bytes_;
  mutable std::atomic<std::size_t> unreleased_bytes_ = 0;
};

}  // namespace batchmill
