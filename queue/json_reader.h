// Strict JSON (RFC 8259) for bytes that strangers wrote: valid UTF-8 only, no lone surrogates, no
// NaN or Infinity, bounded nesting, nothing behind the value. Free functions, any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "queue/wire.h"

namespace batchmill {

inline constexpr int kMaxJsonDepth = 256;  // open arrays and objects at once

// Absent when `bytes` are no such JSON; `why` then says what is wrong and at which byte (from 0).
// Integers of 64 bits are exact; a larger integer becomes a double that does not fit them either,
// and a number beyond the range of a double becomes ±infinity, so that one bad number spoils only
// the field that holds it. A key given twice counts once: with the last value, at the place of the
// first. Reading takes time linear in the input, also for objects with millions of keys.
std::optional<Json> read_json(std::string_view bytes, std::string* why);

// Length of the valid UTF-8 sequence at the start of `bytes` (1 to 4), 0 if there is none. Refuses
// overlong forms, surrogates and what is above U+10FFFF.
std::size_t utf8_sequence_length(std::string_view bytes);

// The longest prefix of at most `max_bytes` that does not cut a character.
std::string_view utf8_prefix(std::string_view text, std::size_t max_bytes);

}  // namespace batchmill
