#include "engine/stop_checker.h"

#include <algorithm>
#include <utility>

namespace batchmill {
namespace {

// Room for the text from the start, so that a step seldom has to look for memory.
constexpr std::size_t kBytesPerToken = 8;
constexpr std::size_t kMaxReservedBytes = 1 << 16;

}  // namespace

StopChecker::StopChecker(const Tokenizer* tokenizer, const SamplingParams* params,
                         std::span<const TokenId> eos_token_ids)
    : params_(params), eos_token_ids_(eos_token_ids) {
  if (tokenizer != nullptr) {
    detokenizer_.emplace(tokenizer, /*with_special=*/false, /*continues_text=*/true);
    const auto max_tokens = static_cast<std::size_t>(std::max(params->max_tokens, 0));
    text_.reserve(std::min(kBytesPerToken * max_tokens, kMaxReservedBytes));
    if (!params->stop.empty()) token_begins_.reserve(std::min(max_tokens, kMaxReservedBytes / 8));
  }
  for (const std::string& stop : params->stop) longest_stop_ = std::max(longest_stop_, stop.size());
}

bool StopChecker::ends_choice(TokenId token) const {
  const auto holds = [token](const auto& ids) {
    return std::ranges::find(ids, token) != ids.end();
  };
  if (num_tokens_ <= params_->min_tokens) return false;
  return (!params_->ignore_eos && holds(eos_token_ids_)) || holds(params_->stop_token_ids);
}

FinishReason StopChecker::append(TokenId token) {
  ++num_tokens_;
  if (ends_choice(token)) return FinishReason::kStop;
  ++num_kept_tokens_;
  if (!detokenizer_) return FinishReason::kNone;

  const std::size_t before = text_.size();
  detokenizer_->append(token, &text_);
  if (longest_stop_ == 0) return FinishReason::kNone;
  token_begins_.push_back(before);
  if (num_tokens_ <= params_->min_tokens || text_.size() == before) return FinishReason::kNone;

  // A match ends in the new text: earlier ones would have ended the choice.
  const std::size_t search_begin = before - std::min(before, longest_stop_ - 1);
  std::size_t cut = std::string::npos;
  for (const std::string& stop : params_->stop) {
    for (std::size_t at = text_.find(stop, search_begin); at != std::string::npos && at < cut;
         at = text_.find(stop, at + 1)) {
      if (at + stop.size() > before) cut = at;
    }
  }
  if (cut == std::string::npos) return FinishReason::kNone;
  text_.resize(cut);
  cut_ = true;
  num_kept_tokens_ = static_cast<std::int32_t>(std::ranges::lower_bound(token_begins_, cut) -
                                               token_begins_.begin());
  return FinishReason::kStop;
}

std::string StopChecker::take_text() {
  if (detokenizer_ && !cut_) text_ += detokenizer_->finish();
  return std::move(text_);
}

}  // namespace batchmill
