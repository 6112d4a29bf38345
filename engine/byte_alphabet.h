// The printable characters by which byte-level BPE vocabularies spell bytes: each of the 256 bytes
// has one, e.g. a space is "Ġ". Constant data; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace batchmill {

// The bytes that a vocabulary entry spells; nothing if it holds a character outside the alphabet.
std::optional<std::string> bytes_of_spelling(std::string_view spelling);

// The same behind `bytes`; false, and nothing is appended, if there are none.
bool append_bytes_of_spelling(std::string_view spelling, std::string* bytes);

// The inverse.
std::string spelling_of_bytes(std::string_view bytes);

}  // namespace batchmill
