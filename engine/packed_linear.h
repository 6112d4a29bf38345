// Matrices that AWQ or GPTQ quantized to four bits, as their published software stores them in
// safetensors. Immutable, any thread.
//
// A linear layer of `in` inputs and `out` outputs is stored as (in, out) in words of 32 bits, eight
// numbers each, with a scale and a zero point per output and group of inputs:
//     weight[o][i] = scales[g][o] × (q[i][o] − zero[g][o])
// AWQ ("gemm"): qweight [in, out ÷ 8] and qzeros [groups, out ÷ 8]; nibble n (lowest first) of word
//     w belongs to output 8 w + (0, 2, 4, 6, 1, 3, 5, 7)[n]. g = i ÷ group size.
// GPTQ: qweight [in ÷ 8, out], nibble n of word w is input 8 w + n; qzeros [groups, out ÷ 8],
// nibble
//     n of word w is output 8 w + n and holds zero − 1 (zero itself in format "gptq_v2"). g is
//     g_idx[i] if there is a g_idx [in] (act-order), else i ÷ group size.
// Scales are F16, BF16 or F32 [groups, out].
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/config_object.h"
#include "engine/safetensors_folder.h"

namespace batchmill {

struct PackedFormat {
  bool awq = false;  // else GPTQ
  std::int32_t group_size = 0;  // 0: one group
  std::int32_t zero_offset = 0;  // added to a stored zero point

  const char* name() const { return awq ? "AWQ-4" : "GPTQ-4"; }
};

// Of a `quantization_config`. Throws std::runtime_error naming the method or setting that is not
// supported.
PackedFormat read_packed_format(const ConfigObject& quantization);

class PackedLinear {
 public:
  // Outputs are read in strips that begin at a multiple of this.
  static constexpr std::int64_t kStripRows = 32;

  // `name` without ".qweight". Throws std::runtime_error naming the tensor that is missing or does
  // not fit the others.
  PackedLinear(const SafetensorsFolder& files, const std::string& name, const PackedFormat& format);

  std::int64_t out_features() const { return out_; }
  std::int64_t in_features() const { return in_; }
  std::size_t bytes() const;

  // Writes outputs first to first + count − 1 as rows [count, in]; `first` and `count` are
  // multiples of 8.
  void read_rows(std::int64_t first, std::int64_t count, float* output) const;

  void release() const;

 private:
  using Entry = SafetensorsFolder::Entry;
  // Of the outputs of one strip, [groups][count].
  struct Groups {
    std::vector<float> scales;
    std::vector<float> zeros;
  };

  // Unpacked numbers of a strip's outputs and a few inputs.
  static constexpr std::int64_t kBlock = 8;
  using Block = std::uint8_t[kStripRows][kBlock];

  void check_shapes();
  void read_group_index();
  Groups read_groups(std::int64_t first, std::int64_t count) const;
  void unpack_block(std::int64_t input, std::int64_t first, std::int64_t count, Block* block) const;

  PackedFormat format_;
  Entry weights_;
  Entry zeros_;
  Entry scales_;
  Entry group_index_;  // null tensor: none
  std::int64_t in_ = 0;
  std::int64_t out_ = 0;
  std::int64_t num_groups_ = 0;
  std::vector<std::int32_t> groups_;  // [in]: the group of an input
};

}  // namespace batchmill
