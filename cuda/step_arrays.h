// A step's arrays on the device. Where each lies depends on nothing but the numbers of rows and
// sequences and the length of block tables, so that a recorded step finds them again.
#pragma once

#include <cstdint>

#include "cuda/staged_upload.h"
#include "engine/backend.h"

namespace batchmill {

class StepArrays {
 public:
  // Sends the batch. Rows (each a sequence) are added up to `rows`, whose tokens are stored nowhere
  // and attend to nothing; `rows` is the batch's own number of rows in a step with prefill. True if
  // addresses or the length of block tables are other ones than before.
  bool send(const Batch& batch, std::int32_t rows, CudaStream* stream);

  std::int32_t* token_ids() const { return token_ids_; }
  const std::int32_t* positions() const { return positions_; }
  const std::int32_t* slots() const { return slots_; }
  const std::int32_t* logits_rows() const { return logits_rows_; }
  const std::int32_t* cu_seqlens() const { return cu_seqlens_; }
  const std::int32_t* block_tables() const { return block_tables_; }  // [sequences, table_stride]
  const std::int32_t* copies() const { return copies_; }  // [copies][3]
  const std::int32_t* drawn_tokens() const { return drawn_tokens_; }  // [drawn][2]
  std::int32_t table_stride() const { return table_stride_; }

 private:
  StagedUpload upload_;
  std::int32_t table_stride_ = 16;
  std::int32_t* token_ids_ = nullptr;
  const std::int32_t* positions_ = nullptr;
  const std::int32_t* slots_ = nullptr;
  const std::int32_t* logits_rows_ = nullptr;
  const std::int32_t* cu_seqlens_ = nullptr;
  const std::int32_t* block_tables_ = nullptr;
  const std::int32_t* copies_ = nullptr;
  const std::int32_t* drawn_tokens_ = nullptr;
};

}  // namespace batchmill
