#include "queue/curve_keys.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "queue/durable_name.h"

namespace batchmill {
namespace {

constexpr std::size_t kKeyCharacters = 40;
constexpr std::size_t kKeyBytes = 32;
constexpr std::size_t kMaxFileBytes = 4096;

// Closes a file descriptor.
class FileCloser {
 public:
  explicit FileCloser(int fd) : fd_(fd) {}
  ~FileCloser() { ::close(fd_); }
  FileCloser(const FileCloser&) = delete;
  FileCloser& operator=(const FileCloser&) = delete;

 private:
  int fd_;
};

[[noreturn]] void fail(const std::string& path, std::string_view what) {
  throw std::runtime_error(fmt::format("{}: {}", path, what));
}

std::string public_key_of(const std::string& secret_key) {
  std::array<char, kKeyCharacters + 1> key = {};
  if (zmq_curve_public(key.data(), secret_key.c_str()) != 0) {
    throw std::runtime_error("libzmq was built without CURVE");
  }
  return key.data();
}

// The only line that is neither empty nor a comment.
std::string key_line(std::string_view text) {
  std::string key;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (line.empty() || line.starts_with("# ") || line == "#") continue;
    if (!key.empty() || !is_curve_key(line)) return "";
    key = line;
  }
  return key;
}

}  // namespace

CurveKeys new_curve_keys() {
  std::array<char, kKeyCharacters + 1> public_key = {}, secret_key = {};
  do {  // a public key that begins with a hyphen would look like an option
    if (zmq_curve_keypair(public_key.data(), secret_key.data()) != 0) {
      throw std::runtime_error("libzmq was built without CURVE");
    }
  } while (public_key[0] == '-');
  CurveKeys keys = {public_key.data(), secret_key.data()};
  ::explicit_bzero(secret_key.data(), secret_key.size());
  return keys;
}

bool is_curve_key(std::string_view text) {
  if (text.size() != kKeyCharacters) return false;
  std::array<std::uint8_t, kKeyBytes> bytes = {};
  return zmq_z85_decode(bytes.data(), std::string(text).c_str()) != nullptr;
}

void write_secret_key(const std::string& path, const CurveKeys& keys) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) {
    fail(path, errno == EEXIST ? "is there already: keys are never written over"
                               : std::string("cannot be made: ") + std::strerror(errno));
  }
  const FileCloser closer(fd);
  const std::string text = "# batchmill: a secret key. Its public key is\n# " + keys.public_key +
                           "\n" + keys.secret_key + "\n";
  // A umask may have taken what the owner needs.
  const bool written = ::fchmod(fd, 0600) == 0 &&
                       ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                       ::fsync(fd) == 0 && make_name_durable(path);
  if (written) return;
  const int error = errno;
  ::unlink(path.c_str());
  fail(path, std::string("cannot be written: ") + std::strerror(error));
}

CurveKeys read_secret_key(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail(path, std::string("cannot be read: ") + std::strerror(errno));
  const FileCloser closer(fd);
  struct stat status = {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) fail(path, "is no regular file");
  if ((status.st_mode & 077) != 0) {
    fail(path, fmt::format("has mode {:03o}: a secret key must be its owner's alone (chmod 600)",
                           status.st_mode & 0777));
  }
  std::array<char, kMaxFileBytes> text = {};
  const ssize_t size = ::read(fd, text.data(), text.size());
  if (size < 0) fail(path, std::string("cannot be read: ") + std::strerror(errno));
  CurveKeys keys;
  keys.secret_key = key_line({text.data(), static_cast<std::size_t>(size)});
  ::explicit_bzero(text.data(), text.size());
  if (keys.secret_key.empty()) {
    fail(path, "holds no secret key: one line of 40 characters, as `batchmill keys new` writes it");
  }
  keys.public_key = public_key_of(keys.secret_key);
  return keys;
}

}  // namespace batchmill
