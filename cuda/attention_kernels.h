// Attention over the paged cache: prefill, chunks of prefill and decodes from one list of work.
#pragma once

#include <cstdint>

#include "cuda/attention_plan.h"
#include "cuda/stream.h"
#include "engine/tensor.h"

namespace batchmill {

// All in device memory, also how much there is to do: a recorded launch does what the lists hold
// when it runs.
struct AttentionArguments {
  const void* qkv;  // bf16 [rows, (heads + 2 kv heads) × dim], queries first
  const void* cache;  // [block][K, V][kv head][slot][dim] of one layer
  DType kv;  // the cache's: bf16; or int8, FP8 (see kv_bytes.h), which have [slot] scales behind
  const std::int32_t* block_tables;  // [sequences, table_stride]
  void* output;  // bf16 [rows, heads × dim]
  void* plan;  // packed, see AttentionPlan::pack(); counts in it are back at 0 after each launch
  float* partial_outputs;  // [partial rows, kv heads, dim], divided by their sums
  float* partial_sums;  // [partial rows, kv heads, 2]: maximum, sum of exponentials
  int table_stride;
  int block_shift;  // tokens of a block = 1 << block_shift
  int heads;
  int kv_heads;
  int dim;
  float scale;  // multiplies q · k
  int window_tokens;
  bool causal;
};

struct AttentionDevice {
  int multiprocessors = 1;
  int shared_bytes = 0;  // that a block may have
};

// Blocks of each launch, per kv head; kernels go on until their list is done.
struct AttentionGrid {
  int wide;
  int narrow;
  int combines;  // of wide items
  int shared_bytes;  // of the device
};
// `is_recordable`: of a step of decodes that is recorded, or run before that. What is launched must
// do for later steps of as many rows, which have longer lists. Of `arguments` heads, their size and
// the cache's type are read.
AttentionGrid attention_grid(const AttentionPlan& plan, const AttentionArguments& arguments,
                             const AttentionDevice& device, bool is_recordable);

// dim: one of is_attention_dim() (cuda/model_limits.h).
void launch_attention(const AttentionArguments& arguments, const AttentionGrid& grid,
                      StreamHandle stream);

}  // namespace batchmill
