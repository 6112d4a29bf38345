// Watches one choice's text for the end of the choice, token by token. Owned by the choice; one
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/sampling_params.h"
#include "engine/tokenizer.h"
#include "engine/types.h"

namespace batchmill {

class StopChecker {
 public:
  // `eos_token_ids` and `params` must outlive the checker; `tokenizer` may be null: no text then.
  StopChecker(const Tokenizer* tokenizer, const SamplingParams* params,
              std::span<const TokenId> eos_token_ids);

  // Takes the next generated token. kStop: the choice ends with it, by an end-of-sequence or stop
  // token (whose text is left out) or by a stop string (the text is cut before it). Stop strings
  // that end before params.min_tokens tokens are text like any other.
  FinishReason append(TokenId token);

  // The text of a choice that has ended; an unfinished character becomes U+FFFD. Call once.
  std::string take_text();

  // How many of the tokens have a part in the text that is kept.
  std::int32_t num_kept_tokens() const { return num_kept_tokens_; }

 private:
  bool ends_choice(TokenId token) const;

  const SamplingParams* params_;
  std::span<const TokenId> eos_token_ids_;
  std::optional<Detokenizer> detokenizer_;
  std::string text_;
  std::vector<std::size_t>
      token_begins_;  // bytes of text before each token; only with stop strings
  std::size_t longest_stop_ = 0;
  std::int32_t num_tokens_ = 0;
  std::int32_t num_kept_tokens_ = 0;
  bool cut_ = false;
};

}  // namespace batchmill
