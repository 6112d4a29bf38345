#include "tests/support/scripted_encoder.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace batchmill::testing {
namespace {

void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

}  // namespace

std::vector<float> ScriptedEncoder::vector_of(std::span<const TokenId> tokens, std::int32_t size) {
  std::uint64_t digest = 1;
  for (const TokenId token : tokens) {
    digest = (digest ^ static_cast<std::uint64_t>(token)) * 0x9E3779B97F4A7C15u;
    digest ^= digest >> 29;
  }
  std::vector<float> vector(static_cast<std::size_t>(size));
  double sum = 0.0;
  for (float& value : vector) {
    digest = digest * 6364136223846793005u + 1442695040888963407u;
    value = static_cast<float>(static_cast<std::int64_t>(digest >> 40)) / 8388608.0f - 1.0f;
    sum += double{value} * double{value};
  }
  for (float& value : vector) value /= static_cast<float>(std::sqrt(sum));
  return vector;
}

void ScriptedEncoder::embed(const Batch& batch, std::span<float> embeddings) {
  if (options_.before_step) options_.before_step(num_steps_);
  ++num_steps_;
  const auto num_seqs = static_cast<std::size_t>(batch.num_seqs());
  const auto size = static_cast<std::size_t>(options_.embedding_size);
  require(num_seqs > 0 && embeddings.size() == num_seqs * size, "the room for embeddings is wrong");
  require(batch.cu_seqlens.size() == num_seqs + 1 && batch.cu_seqlens.front() == 0 &&
              batch.cu_seqlens.back() == batch.num_tokens(),
          "the rows are not those of the sequences");
  require(batch.positions.size() == batch.token_ids.size(), "a row has no position");
  step_sizes_.push_back(batch.num_seqs());
  for (std::size_t s = 0; s < num_seqs; ++s) {
    const auto begin = static_cast<std::size_t>(batch.cu_seqlens[s]);
    const auto end = static_cast<std::size_t>(batch.cu_seqlens[s + 1]);
    require(begin < end && end - begin <= static_cast<std::size_t>(options_.max_sequence_tokens),
            "a sequence is empty or too long");
    for (std::size_t i = begin; i < end; ++i) {
      require(batch.positions[i] == static_cast<std::int32_t>(i - begin), "positions do not count");
      require(batch.token_ids[i] >= 0 && batch.token_ids[i] < options_.vocab_size,
              "a token is outside the vocabulary");
    }
    const std::vector<float> vector =
        vector_of(std::span(batch.token_ids).subspan(begin, end - begin), options_.embedding_size);
    std::ranges::copy(vector, embeddings.begin() + static_cast<std::ptrdiff_t>(s * size));
  }
}

}  // namespace batchmill::testing
