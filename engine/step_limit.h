// How many rows a step may have: what the options say, or less while the device is short of memory.
// Owned by who puts steps together; one thread.
#pragma once

#include <algorithm>
#include <cstdint>

namespace batchmill {

class StepLimit {
 public:
  explicit StepLimit(std::int32_t most_rows) : most_(most_rows), rows_(most_rows) {}

  std::int32_t rows() const { return rows_; }
  void lower(std::int32_t rows) { rows_ = std::min(rows_, rows); }
  // By an eighth of the most. Returns the new limit, 0 if it is the most again.
  std::int32_t raise() {
    rows_ = std::min(most_, rows_ + std::max(most_ / 8, 1));
    return rows_ == most_ ? 0 : rows_;
  }

 private:
  std::int32_t most_;
  std::int32_t rows_;
};

}  // namespace batchmill
