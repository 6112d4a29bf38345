#include "queue/raw_input.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "queue/input_stream.h"

namespace batchmill {
namespace {

constexpr std::size_t kSpoolChunkBytes = 256 << 10;

int open_unlinked_file() {
  const char* const configured = std::getenv("TMPDIR");
  const std::string folder = configured != nullptr && *configured != '\0' ? configured : "/tmp";
  const int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0) return fd;
  std::string path = folder + "/batchmill-XXXXXX";  // for file systems without O_TMPFILE
  const int named = ::mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) ::unlink(path.c_str());
  return named;
}

}  // namespace

RawInput::RawInput(const std::string& path) : name_(path == "-" ? "standard input" : path) {
  if (path == "-") {
    source_fd_ = STDIN_FILENO;
  } else {
    source_fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (source_fd_ < 0) fail("cannot open", errno);
    owns_source_ = true;
  }
  struct stat status = {};
  int error = ::fstat(source_fd_, &status) == 0 ? 0 : errno;
  if (error == 0 && S_ISDIR(status.st_mode)) error = EISDIR;
  // Standard input may be a file that is read from its middle, so it is always spooled.
  if (error == 0 && (path == "-" || !S_ISREG(status.st_mode))) {
    spool_fd_ = open_unlinked_file();
    if (spool_fd_ < 0) error = errno;
  }
  if (error != 0) {
    if (owns_source_) ::close(source_fd_);
    fail("cannot read", error);
  }
  if (spool_fd_ < 0) size_bytes_ = static_cast<std::uint64_t>(status.st_size);
}

RawInput::~RawInput() {
  if (spool_fd_ >= 0) ::close(spool_fd_);
  if (owns_source_) ::close(source_fd_);
}

std::size_t RawInput::read_at(std::uint64_t offset, char* buffer, std::size_t size) {
  if (spool_fd_ >= 0) spool_until(offset + size);
  const int fd = spool_fd_ >= 0 ? spool_fd_ : source_fd_;
  std::size_t filled = 0;
  while (filled < size) {
    const ssize_t got =
        ::pread(fd, buffer + filled, size - filled, static_cast<off_t>(offset + filled));
    if (got == 0 && offset + filled < size_bytes_) {
      throw InputError("truncated_input",
                       fmt::format("{} got shorter while it was read: {} of {} bytes are there",
                                   name_, offset + filled, size_bytes_));
    }
    if (got == 0) break;
    if (got > 0) filled += static_cast<std::size_t>(got);
    if (got < 0 && errno != EINTR) fail("cannot read", errno);
  }
  return filled;
}

void RawInput::spool_until(std::uint64_t end) {
  std::vector<char> chunk;
  while (!source_ended_ && spooled_bytes_ < end) {
    chunk.resize(kSpoolChunkBytes);
    const ssize_t got = ::read(source_fd_, chunk.data(), chunk.size());
    if (got == 0) source_ended_ = true;
    if (got < 0 && errno != EINTR) fail("cannot read", errno);
    for (ssize_t done = 0; done < got;) {
      const ssize_t put =
          ::pwrite(spool_fd_, chunk.data() + done, static_cast<std::size_t>(got - done),
                   static_cast<off_t>(spooled_bytes_));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) fail("cannot keep a copy of", errno);
      done += put;
      spooled_bytes_ += static_cast<std::uint64_t>(put);
    }
  }
}

void RawInput::fail(const std::string& what, int error) const {
  throw InputError("unreadable_input", fmt::format("{} {}: {}", what, name_, std::strerror(error)));
}

}  // namespace batchmill
