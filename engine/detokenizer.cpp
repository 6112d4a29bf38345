#include "engine/tokenizer.h"
#include "engine/unicode.h"

namespace batchmill {

Detokenizer::Detokenizer(const Tokenizer* tokenizer, bool with_special, bool continues_text)
    : tokenizer_(tokenizer), with_special_(with_special), starts_text_(!continues_text) {}

std::string Detokenizer::append(TokenId id) {
  std::string text;
  append(id, &text);
  return text;
}

void Detokenizer::append(TokenId id, std::string* text) {
  if (tokenizer_->append_bytes(id, with_special_, starts_text_, &pending_)) starts_text_ = false;
  std::size_t num_done = pending_.size();
  // At most three bytes can be the start of a character that is not whole.
  for (std::size_t tail = 1; tail <= 3 && tail <= pending_.size(); ++tail) {
    const std::size_t start = pending_.size() - tail;
    if (utf8_part_at(pending_, start).state == Utf8Part::State::kUnfinished) {
      num_done = start;
      break;
    }
  }
  append_valid_utf8(std::string_view(pending_).substr(0, num_done), text);
  pending_.erase(0, num_done);
}

std::string Detokenizer::finish() {
  std::string text = replace_invalid_utf8(pending_);
  pending_.clear();
  return text;
}

}  // namespace batchmill
