// What turns sequences into embeddings on a device (BERT-type encoders). One owner thread.
#pragma once

#include <cstdint>
#include <span>

#include "engine/batch.h"

namespace batchmill {

class EncoderRunner {
 public:
  virtual ~EncoderRunner() = default;

  virtual std::int32_t vocab_size() const = 0;
  virtual std::int32_t embedding_size() const = 0;
  virtual std::int32_t max_sequence_tokens() const = 0;

  // Writes one vector of unit length per sequence into `embeddings` [S, embedding_size]. Of `batch`
  // token_ids, positions and cu_seqlens are read; every sequence is whole and starts at position 0.
  // Throws std::runtime_error on a device failure.
  virtual void embed(const Batch& batch, std::span<float> embeddings) = 0;
};

}  // namespace batchmill
