#include "engine/embedder.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace batchmill {

Embedder::Embedder(const EngineOptions& options, EncoderRunner* runner)
    : options_(options),
      step_limit_(std::max(options.max_num_batched_tokens, 1)),
      runner_(runner) {}

std::int32_t Embedder::max_sequence_tokens() const {
  return std::min(options_.max_context_tokens, runner_->max_sequence_tokens());
}

void Embedder::add(Request request) {
  if (request.prompt.empty()) throw std::invalid_argument("the input has no tokens");
  const auto length = static_cast<std::int64_t>(request.prompt.size());
  if (length > max_sequence_tokens()) {
    throw std::invalid_argument("the input has " + std::to_string(length) +
                                " tokens and the model takes " +
                                std::to_string(max_sequence_tokens()));
  }
  for (const TokenId token : request.prompt) {
    if (token < 0 || token >= runner_->vocab_size()) {
      throw std::invalid_argument("token id " + std::to_string(token) +
                                  " is outside the vocabulary");
    }
  }
  stats_.waiting_prompt_tokens += length;
  waiting_.push_back(std::move(request));
}

std::vector<std::size_t> Embedder::choose() const {
  std::vector<std::size_t> chosen;
  std::size_t room = static_cast<std::size_t>(step_limit_.rows());
  for (std::size_t i = 0; i < waiting_.size() && room > 0; ++i) {
    const std::size_t length = waiting_[i].prompt.size();
    if (length > room && !chosen.empty()) continue;
    chosen.push_back(i);
    room -= std::min(room, length);
  }
  return chosen;
}

void Embedder::fill_batch(const std::vector<std::size_t>& chosen) {
  batch_.clear();
  batch_.cu_seqlens.push_back(0);
  for (const std::size_t index : chosen) {
    const std::vector<TokenId>& prompt = waiting_[index].prompt;
    const auto length = static_cast<std::int32_t>(prompt.size());
    batch_.token_ids.insert(batch_.token_ids.end(), prompt.begin(), prompt.end());
    for (std::int32_t position = 0; position < length; ++position) {
      batch_.positions.push_back(position);
    }
    batch_.cu_seqlens.push_back(batch_.num_tokens());
    batch_.context_lens.push_back(length);
  }
}

std::int32_t Embedder::shrink_steps() {
  if (batch_.num_seqs() < 2) return 0;
  step_limit_.lower(batch_.num_tokens() / 2);
  return step_limit_.rows();
}

StepOutput& Embedder::step() {
  StepOutput& output = output_;
  output = {};
  const std::vector<std::size_t> chosen = choose();
  const auto size = static_cast<std::size_t>(runner_->embedding_size());
  if (!chosen.empty()) {
    fill_batch(chosen);
    embeddings_.assign(chosen.size() * size, 0.0f);
    runner_->embed(batch_, embeddings_);
  }
  // Nothing has changed until here.
  for (const RequestId id : cancelled_) {
    RequestOutput ended;
    ended.id = id;
    ended.choices.resize(1);
    ended.choices.front().finish_reason = FinishReason::kCancelled;
    output.finished.push_back(std::move(ended));
  }
  cancelled_.clear();
  for (std::size_t s = 0; s < chosen.size(); ++s) {
    const Request& request = waiting_[chosen[s]];
    const auto length = static_cast<std::int32_t>(request.prompt.size());
    output.work.push_back({.id = request.id, .num_prefill_tokens = length, .first_token = true});
    RequestOutput ended;
    ended.id = request.id;
    ended.num_prompt_tokens = length;
    const auto first = embeddings_.begin() + static_cast<std::ptrdiff_t>(s * size);
    ended.embedding.assign(first, first + static_cast<std::ptrdiff_t>(size));
    if (!std::ranges::all_of(ended.embedding, [](float x) { return std::isfinite(x); })) {
      ended.error = "the embedding holds values that are no numbers";
      ended.embedding.clear();
    }
    output.finished.push_back(std::move(ended));
    stats_.waiting_prompt_tokens -= length;
  }
  output.num_tokens = chosen.empty() ? 0 : batch_.num_tokens();
  stats_.num_rows += output.num_tokens;
  stats_.num_prefill_rows += output.num_tokens;
  for (std::size_t s = chosen.size(); s > 0; --s) {
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(chosen[s - 1]));
  }
  return output;
}

void Embedder::cancel(RequestId id) {
  const auto it = std::ranges::find(waiting_, id, &Request::id);
  if (it == waiting_.end()) return;
  stats_.waiting_prompt_tokens -= static_cast<std::int64_t>(it->prompt.size());
  cancelled_.push_back(id);
  waiting_.erase(it);
}

EngineStats Embedder::stats() const {
  EngineStats stats = stats_;
  stats.num_waiting = static_cast<std::int32_t>(waiting_.size());
  return stats;
}

}  // namespace batchmill
