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

void ScriptedRunner::begin(const Batch& batch, std::span<const Draw> draws) {
  require(options_.draws_tokens, "a step begun on a device that draws no tokens");
  require(under_way_.size() < 2, "a third step under way");
  require(!has_failed_, "a step begun behind one that has failed");
  Step& step = under_way_.emplace_back();
  step.batch = batch;
  for (const Draw& draw : draws) {
    require(draw.token == kNoToken, "a draw that has a token");
    const SamplingContext& context = draw.context;
    step.draws.push_back({*context.params,
                          {context.eos_token_ids.begin(), context.eos_token_ids.end()},
                          {context.prompt.begin(), context.prompt.end()},
                          {context.generated.begin(), context.generated.end()},
                          context.choice,
                          draw.logits_row,
                          kNoToken});
  }
  check_draws(step);
  if (under_way_.size() > 1) ++num_steps_ahead_;
  has_failed_ = true;
  if (batch.num_tokens() > options_.max_rows) throw std::bad_alloc();
  if (options_.is_eager) compute(&step);
  has_failed_ = false;
}

void ScriptedRunner::check_draws(const Step& step) const {
  const std::size_t ahead_of = under_way_.size() - 1;
  require(step.batch.drawn_tokens.empty() || ahead_of == 1, "drawn tokens without a step before");
  std::set<std::int32_t> rows;
  for (const auto& [row, draw] : step.batch.drawn_tokens) {
    require(
        row >= 0 && row < step.batch.num_tokens() && step.batch.token_ids[index(row)] == kNoToken,
        "a drawn token's row has a token");
    require(draw >= 0 && index(draw) < under_way_.front().draws.size(), "a draw that is not there");
    require(rows.empty() || row > *rows.rbegin(), "the rows of drawn tokens do not ascend");
    rows.insert(row);
  }
  require(std::ranges::count(step.batch.token_ids, kNoToken) ==
              static_cast<std::ptrdiff_t>(rows.size()),
          "a row without a token");
  for (const OwnDraw& draw : step.draws) {
    require(draw.logits_row >= 0 && index(draw.logits_row) < step.batch.logits_rows.size(),
            "a draw without logits");
    const bool is_unknown = !draw.generated.empty() && draw.generated.back() == kNoToken;
    require(is_unknown == rows.contains(step.batch.logits_rows[index(draw.logits_row)]),
            "a draw behind a drawn token");
    require(std::ranges::count(draw.generated, kNoToken) == (is_unknown ? 1 : 0),
            "an unknown token within the generated ones");
  }
}

// Rows and draws get the tokens that the step before has drawn.
void ScriptedRunner::fill_in_drawn(Step* step) const {
  for (const auto& [row, draw] : step->batch.drawn_tokens) {
    const TokenId token = std::max(drawn_[index(draw)], 0);
    step->batch.token_ids[index(row)] = token;
    for (OwnDraw& own : step->draws) {
      if (step->batch.logits_rows[index(own.logits_row)] == row) own.generated.back() = token;
    }
  }
}

void ScriptedRunner::compute(Step* step) {
  fill_in_drawn(step);
  const auto vocab = index(options_.vocab_size);
  step->logits.resize(step->batch.logits_rows.size() * vocab);
  forward(step->batch, step->logits);
  num_rows_ -= step->batch.num_tokens();  // until somebody waits for it
  drawn_.clear();
  for (OwnDraw& draw : step->draws) {
    const SamplingContext context{&draw.params, draw.eos_token_ids, draw.prompt, draw.generated,
                                  draw.choice};
    const auto row = std::span(step->logits).subspan(index(draw.logits_row) * vocab, vocab);
    draw.token = sampler_.sample(row, context).value_or(kNoToken);
    drawn_.push_back(draw.token);
  }
  step->is_computed = true;
}

void ScriptedRunner::end(std::span<Draw> draws, std::span<const std::int32_t> host_rows,
                         std::span<float> logits) {
  const auto vocab = index(options_.vocab_size);
  require(!under_way_.empty(), "no step to wait for");
  require(!has_failed_, "a step waited for that has failed");
  Step& step = under_way_.front();
  require(host_rows.empty() || under_way_.size() == 1, "a step begun behind one with host rows");
  require(draws.size() == step.draws.size(), "draws of another step");
  require(std::ranges::is_sorted(host_rows, std::less_equal<>()), "host_rows do not ascend");
  require(logits.size() == host_rows.size() * vocab, "logits have another size than host_rows");
  std::vector<bool> is_used(step.batch.logits_rows.size(), false);
  for (const std::int32_t row : host_rows) {
    require(row >= 0 && index(row) < is_used.size(), "a host row is not a logits row");
    is_used[index(row)] = true;
  }
  for (const OwnDraw& draw : step.draws) is_used[index(draw.logits_row)] = true;
  require(std::ranges::find(is_used, false) == is_used.end(), "logits that nobody wants");

  has_failed_ = true;
  if (!step.is_computed) compute(&step);
  has_failed_ = false;
  for (std::size_t i = 0; i < draws.size(); ++i) draws[i].token = step.draws[i].token;
  for (std::size_t i = 0; i < host_rows.size(); ++i) {
    std::ranges::copy(std::span(step.logits).subspan(index(host_rows[i]) * vocab, vocab),
                      logits.subspan(i * vocab).begin());
  }
  num_rows_ += step.batch.num_tokens();
  num_draws_ += static_cast<std::int64_t>(draws.size());
  num_host_rows_ += static_cast<std::int64_t>(host_rows.size());
  under_way_.pop_front();
}

void ScriptedRunner::drop_steps() noexcept {
  for (const Step& step : under_way_) spoil(step.batch);
  under_way_.clear();
  has_failed_ = false;
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
