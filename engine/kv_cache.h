// The physical paged cache of keys and values: layers × blocks of memory and no policy. Which block
// belongs to whom is the scheduler's business. Owned by a Transformer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/tensor.h"

namespace batchmill {

// Bytes of one head's K or V of one token. Single bytes come with a float32 scale.
constexpr std::int32_t kv_token_bytes(std::int32_t head_dim, std::size_t element_bytes) {
  return head_dim * static_cast<std::int32_t>(element_bytes) + (element_bytes == 1 ? 4 : 0);
}

struct KvCacheShape {
  std::int32_t num_layers = 0;
  std::int32_t num_blocks = 0;
  std::int32_t block_size_tokens = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  DType dtype = DType::kF32;
  std::int32_t latent_dim = 0;  // > 0: one row of so many elements per token, no K and V

  // Of one head's K or V of one token.
  std::int32_t token_bytes() const {
    return kv_token_bytes(head_dim, static_cast<std::size_t>(dtype_bytes(dtype)));
  }
  std::size_t layer_block_bytes() const {
    const std::int64_t token = latent_dim > 0 ? std::int64_t{latent_dim} * dtype_bytes(dtype)
                                              : std::int64_t{2} * num_kv_heads * token_bytes();
    return static_cast<std::size_t>(block_size_tokens) * static_cast<std::size_t>(token);
  }
  std::size_t layer_bytes() const { return layer_block_bytes() * num_blocks; }
  std::size_t bytes() const { return layer_bytes() * num_layers; }
};

// A layer is an array of blocks of layer_block_bytes(). What a block looks like inside is its
// backend's own affair.
class KvCache {
 public:
  KvCache(const KvCacheShape& shape, std::unique_ptr<DeviceBuffer> memory)
      : shape_(shape), memory_(std::move(memory)) {}

  const KvCacheShape& shape() const { return shape_; }
  std::byte* layer(std::int32_t index) const {
    return static_cast<std::byte*>(memory_->data()) + shape_.layer_bytes() * index;
  }

 private:
  KvCacheShape shape_;
  std::unique_ptr<DeviceBuffer> memory_;
};

}  // namespace batchmill
