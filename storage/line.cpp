#include "storage/line.h"

#include <string_view>

namespace batchmill {

bool StoredLine::is_blank() const {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (too_long) return false;
  std::string_view rest = bytes;
  if (rest.starts_with(kByteOrderMark)) rest.remove_prefix(kByteOrderMark.size());
  return rest.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos;
}

LineUsage& LineUsage::operator+=(const LineUsage& other) {
  prompt_tokens += other.prompt_tokens;
  prompt_cached_tokens += other.prompt_cached_tokens;
  prompt_computed_tokens += other.prompt_computed_tokens;
  recomputed_tokens += other.recomputed_tokens;
  completion_tokens += other.completion_tokens;
  prefill_us += other.prefill_us;
  decode_us += other.decode_us;
  preemptions += other.preemptions;
  return *this;
}

}  // namespace batchmill
