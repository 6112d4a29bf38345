// A file's bytes as they lie there, at any offset. What cannot be sought in (standard input, a
// pipe) is kept in an unlinked temporary file as it is read. One owner, one thread.
#pragma once

#include <cstdint>
#include <string>

namespace batchmill {

class RawInput {
 public:
  explicit RawInput(const std::string& path);  // "-" is standard input; throws InputError
  ~RawInput();
  RawInput(const RawInput&) = delete;
  RawInput& operator=(const RawInput&) = delete;

  // Fills as much of the buffer as there are bytes from `offset` on; 0 at the end.
  std::size_t read_at(std::uint64_t offset, char* buffer, std::size_t size);

  const std::string& name() const { return name_; }  // for messages

 private:
  void spool_until(std::uint64_t end);
  [[noreturn]] void fail(const std::string& what, int error) const;

  std::string name_;
  int source_fd_ = -1;
  bool owns_source_ = false;
  int spool_fd_ = -1;  // -1: the source itself can be sought in
  std::uint64_t size_bytes_ = 0;  // of the source itself when it was opened
  std::uint64_t spooled_bytes_ = 0;
  bool source_ended_ = false;
};

}  // namespace batchmill
