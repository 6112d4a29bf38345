// Small value types that every part of the engine shares.
#pragma once

#include <cstdint>
#include <string_view>

namespace batchmill {

// A token id of one model's vocabulary. kNoToken (-1) is the one sentinel.
using TokenId = std::int32_t;
inline constexpr TokenId kNoToken = -1;

// A KV block's index in one device's pool; kNoBlock (-1) marks unused block-table entries.
using BlockId = std::int32_t;
inline constexpr BlockId kNoBlock = -1;

// Names one request inside one Engine. Chosen by the caller, unique among the requests not yet
// finished.
using RequestId = std::uint64_t;

// Why a choice ended. Values reach the disk: do not renumber.
enum class FinishReason : std::uint8_t {
  kNone = 0,  // still running
  kStop = 1,  // end-of-sequence token, stop token or stop string
  kLength = 2,  // max_tokens or the context's end
  kToolCalls = 3,  // the text was parsed into tool calls
  kCancelled = 4,  // Engine::cancel
};

// The name that OpenAI's API gives the reason, e.g. "stop".
std::string_view to_string(FinishReason reason);

}  // namespace batchmill
