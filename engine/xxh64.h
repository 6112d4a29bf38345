// The 64-bit hash XXH64 (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md): fast and
// well distributed, not cryptographic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace batchmill {

std::uint64_t xxh64(std::span<const std::byte> bytes, std::uint64_t seed = 0);

}  // namespace batchmill
