// Reads a job file as a stream of content bytes: plain, gzip or zstd (told by magic bytes), from a
// path or standard input, with the ability to step back for a resumed upload.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

namespace batchmill {

// The file cannot be read or its archive is cut or damaged; what() names file and place.
class InputError : public std::runtime_error {
 public:
  InputError(std::string code, const std::string& message);
  const std::string& code() const { return code_; }  // "truncated_input", "unreadable_input"

 private:
  std::string code_;
};

class InputStream {
 public:
  // "-" is standard input; it is kept in an unlinked temporary file so that it can be read again.
  static std::unique_ptr<InputStream> open(const std::string& path);
  virtual ~InputStream() = default;

  // Content bytes from `offset` on; 0 at the end. Steps back reopen the archive.
  virtual std::size_t read_at(std::uint64_t offset, char* buffer, std::size_t size) = 0;
};

// 32 hex digits (XXH3-128) over the whole content; reads the stream once.
std::string content_hash(InputStream& input);

}  // namespace batchmill
