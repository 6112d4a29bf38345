#include "tests/support/scripted_runner.h"

#include <algorithm>
#include <new>
#include <set>

namespace batchmill::testing {
namespace {

std::uint64_t mix(std::uint64_t x) {  // the finalizer of splitmix64
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

std::uint64_t mix(std::uint64_t a, std::uint64_t b) { return mix(mix(a) ^ b); }

void require(bool condition, const char* what) {
  if (!condition) throw std::logic_error(std::string("batch: ") + what);
}

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

ScriptedRunner::ScriptedRunner(ScriptedRunnerOptions options)
    : options_(std::move(options)),
      slots_(index(options_.num_blocks) * index(options_.block_size_tokens)),
      sampler_(options_.vocab_size) {}

void ScriptedRunner::forward_and_draw(const Batch& batch, std::span<Draw> draws,
                                      std::span<const std::int32_t> host_rows,
                                      std::span<float> logits) {
  const auto vocab = index(options_.vocab_size);
  const std::size_t num_rows = batch.logits_rows.size();
  require(options_.draws_tokens, "tokens drawn on a device that cannot");
  require(std::ranges::is_sorted(host_rows, std::less_equal<>()), "host_rows do not ascend");
  require(logits.size() == host_rows.size() * vocab, "logits have another size than host_rows");
  std::vector<bool> is_used(num_rows, false);
  for (const std::int32_t row : host_rows) {
    require(row >= 0 && index(row) < num_rows, "a host row is not a logits row");
    is_used[index(row)] = true;
  }
  for (const Draw& draw : draws) {
    require(draw.logits_row >= 0 && index(draw.logits_row) < num_rows, "a draw without logits");
    require(draw.token == kNoToken, "a draw that has a token");
    is_used[index(draw.logits_row)] = true;
  }
  require(std::ranges::find(is_used, false) == is_used.end(), "logits that nobody wants");

  device_logits_.resize(num_rows * vocab);
  forward(batch, device_logits_);
  const auto row = [&](std::int32_t i) {
    return std::span(device_logits_).subspan(index(i) * vocab, vocab);
  };
  for (std::size_t i = 0; i < host_rows.size(); ++i) {
    std::ranges::copy(row(host_rows[i]), logits.subspan(i * vocab).begin());
  }
  for (Draw& draw : draws) {
    draw.token = sampler_.sample(row(draw.logits_row), draw.context).value_or(kNoToken);
  }
  num_draws_ += static_cast<std::int64_t>(draws.size());
  num_host_rows_ += static_cast<std::int64_t>(host_rows.size());
}

void ScriptedRunner::forward(const Batch& batch, std::span<float> logits) {
  check(batch);
  check_copies(batch);
  require(logits.size() == batch.logits_rows.size() * index(options_.vocab_size),
          "logits have another size than logits_rows");
  const std::int64_t step = num_steps_++;
  if (options_.before_step) {
    try {
      options_.before_step(step);
    } catch (...) {
      spoil(batch);
      throw;
    }
  }
  if (batch.num_tokens() > options_.max_rows) {
    spoil(batch);
    throw std::bad_alloc();
  }
  copy_blocks(batch);
  std::size_t next_logits_row = 0;
  for (std::size_t s = 0; s < batch.context_lens.size(); ++s) {
    run_sequence(batch, s, &next_logits_row, logits);
  }
  num_rows_ += batch.num_tokens();
  widest_step_ = std::max(widest_step_, batch.num_seqs());
}

void ScriptedRunner::check(const Batch& batch) const {
  const std::size_t rows = batch.token_ids.size();
  const std::size_t seqs = batch.context_lens.size();
  require(rows > 0, "no rows");
  require(batch.positions.size() == rows && batch.slot_mapping.size() == rows, "row arrays differ");
  require(batch.cu_seqlens.size() == seqs + 1 && batch.cu_seqlens.front() == 0 &&
              batch.cu_seqlens.back() == batch.num_tokens(),
          "cu_seqlens do not span the rows");
  require(batch.block_tables.size() == seqs * index(batch.max_blocks), "block_tables' size");
  require(std::ranges::is_sorted(batch.logits_rows, std::less_equal<>()),
          "logits_rows do not ascend");
  for (const std::int32_t row : batch.logits_rows) {
    require(row >= 0 && row < batch.num_tokens(), "a logits row is not a row");
  }
  std::set<std::int32_t> written;
  for (std::size_t s = 0; s < seqs; ++s) {
    const std::int32_t begin = batch.cu_seqlens[s];
    const std::int32_t end = batch.cu_seqlens[s + 1];
    require(begin < end, "a sequence without rows");
    const auto table =
        std::span(batch.block_tables).subspan(s * index(batch.max_blocks), index(batch.max_blocks));
    require(batch.context_lens[s] == batch.positions[index(end - 1)] + 1,
            "context_lens is not the last position + 1");
    std::set<BlockId> own;
    for (const BlockId block : table) {
      require(block == kNoBlock || (block >= 0 && block < options_.num_blocks), "no such block");
      require(block == kNoBlock || own.insert(block).second, "a block twice in one table");
    }
    for (std::int32_t row = begin; row < end; ++row) {
      const TokenId token = batch.token_ids[index(row)];
      const std::int32_t position = batch.positions[index(row)];
      require(token >= 0 && token < options_.vocab_size, "no such token");
      require(row == begin || position == batch.positions[index(row - 1)] + 1,
              "positions are not contiguous");
      require(position / options_.block_size_tokens < batch.max_blocks, "table too short");
      const BlockId block = table[index(position / options_.block_size_tokens)];
      require(block != kNoBlock, "the table does not cover the context");
      const std::int32_t slot =
          block * options_.block_size_tokens + position % options_.block_size_tokens;
      require(batch.slot_mapping[index(row)] == slot, "slot_mapping contradicts the table");
      require(written.insert(slot).second, "a slot is written twice");
    }
  }
}

void ScriptedRunner::check_copies(const Batch& batch) const {
  std::set<BlockId> sources;
  std::set<BlockId> destinations;
  for (const BlockCopy& copy : batch.copies) {
    require(copy.num_tokens > 0 && copy.num_tokens < options_.block_size_tokens,
            "a copy of no tokens or of a whole block");
    sources.insert(copy.source);
    require(destinations.insert(copy.destination).second, "two copies into one block");
    for (std::int32_t i = 0; i < copy.num_tokens; ++i) {
      require(slots_[index(copy.source * options_.block_size_tokens + i)].token != kNoToken,
              "a copy from slots that were not valid before the step");
    }
  }
  for (const BlockId block : destinations) {
    require(!sources.contains(block), "a block is both source and destination");
  }
  for (const std::int32_t slot : batch.slot_mapping) {
    for (const BlockCopy& copy : batch.copies) {
      const bool hits_copied = slot / options_.block_size_tokens == copy.source &&
                               slot % options_.block_size_tokens < copy.num_tokens;
      require(!hits_copied, "a row overwrites what is copied");
    }
  }
}

void ScriptedRunner::spoil(const Batch& batch) {
  for (const std::int32_t slot : batch.slot_mapping) slots_[index(slot)] = {};
  for (const BlockCopy& copy : batch.copies) {
    for (std::int32_t i = 0; i < copy.num_tokens; ++i) {
      slots_[index(copy.destination * options_.block_size_tokens + i)] = {};
    }
  }
}

void ScriptedRunner::copy_blocks(const Batch& batch) {
  for (const BlockCopy& copy : batch.copies) {
    const auto from = slots_.begin() + copy.source * options_.block_size_tokens;
    std::copy_n(from, copy.num_tokens,
                slots_.begin() + copy.destination * options_.block_size_tokens);
  }
  num_copies_ += static_cast<std::int64_t>(batch.copies.size());
}

void ScriptedRunner::run_sequence(const Batch& batch, std::size_t s, std::size_t* next_logits_row,
                                  std::span<float> logits) {
  const auto vocab = index(options_.vocab_size);
  const auto table =
      std::span(batch.block_tables).subspan(s * index(batch.max_blocks), index(batch.max_blocks));
  const std::int32_t first_row = batch.cu_seqlens[s];
  std::uint64_t seen = 0;  // digest of all KV content before the position
  context_.clear();
  std::int32_t row = first_row;
  for (std::int32_t position = 0; position < batch.context_lens[s]; ++position) {
    const BlockId block = table[index(position / options_.block_size_tokens)];
    require(block != kNoBlock, "the table does not cover the context");
    Slot& slot =
        slots_[index(block * options_.block_size_tokens + position % options_.block_size_tokens)];
    const bool is_row = position >= batch.positions[index(first_row)];
    if (is_row) {
      const TokenId token = batch.token_ids[index(row)];
      slot = {token, mix(mix(seen, static_cast<std::uint64_t>(token)),
                         static_cast<std::uint64_t>(position))};
    }
    require(slot.token != kNoToken, "attention reads a slot that was never written");
    seen = mix(seen, mix(slot.digest, static_cast<std::uint64_t>(slot.token)));
    context_.push_back(slot.token);
    if (!is_row) continue;
    if (*next_logits_row < batch.logits_rows.size() && batch.logits_rows[*next_logits_row] == row) {
      write_logits(seen, context_, logits.subspan(*next_logits_row * vocab, vocab));
      ++*next_logits_row;
    }
    ++row;
  }
}

void ScriptedRunner::write_logits(std::uint64_t digest, std::span<const TokenId> context,
                                  std::span<float> row) const {
  for (std::size_t token = 0; token < row.size(); ++token) {
    const std::uint64_t bits = mix(digest, token);
    row[token] = static_cast<float>(bits >> 40) * (8.0f / 16777216.0f) - 4.0f;
  }
  if (options_.script) row[index(options_.script(context))] = 40.0f;
}

}  // namespace batchmill::testing
