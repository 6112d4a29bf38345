// Unpacks an archive from its beginning to its end: gzip with any number of members, zstd with any
// number of frames, skippable ones too. One owner, one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "queue/raw_input.h"

namespace batchmill {

enum class Compression : std::uint8_t { kNone, kGzip, kZstd, kOther };

// Told by a file's first bytes; kOther: a format that is known but not read (bzip2, xz, zip).
Compression detect_compression(std::string_view first_bytes);

class Decompressor {
 public:
  // `input` must outlive it.
  static std::unique_ptr<Decompressor> create(Compression compression, RawInput& input);
  virtual ~Decompressor() = default;

  // The next content bytes, at least one unless the archive has ended. Throws InputError:
  // "truncated_input" if the archive is cut, "unreadable_input" if it is damaged.
  virtual std::size_t read(char* buffer, std::size_t size) = 0;
};

}  // namespace batchmill
