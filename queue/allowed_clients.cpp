#include "queue/allowed_clients.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "queue/curve_keys.h"
#include "queue/durable_name.h"

namespace batchmill {
namespace {

constexpr std::size_t kMaxNameCharacters = 64;
constexpr mode_t kOthersMayWrite = 022;

struct Limit {
  std::string_view name;
  std::uint64_t Caller::*field;
};
constexpr Limit kLimits[] = {{"max_bytes", &Caller::max_bytes},
                             {"max_lines", &Caller::max_lines},
                             {"max_jobs", &Caller::max_jobs}};

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw std::runtime_error(fmt::format("{}: {}", path, what));
}

std::vector<std::string_view> words_of(std::string_view line) {
  constexpr std::string_view kBlank = " \t\r";
  std::vector<std::string_view> words;
  while (true) {
    const std::size_t begin = line.find_first_not_of(kBlank);
    if (begin == std::string_view::npos) return words;
    line.remove_prefix(begin);
    const std::size_t size = std::min(line.find_first_of(kBlank), line.size());
    words.push_back(line.substr(0, size));
    line.remove_prefix(size);
  }
}

// False when the word is none that a client may have.
bool read_word(std::string_view word, Caller* client) {
  if (word == "admin") {
    client->admin = true;
    return true;
  }
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos) return false;
  const std::string_view name = word.substr(0, equals), value = word.substr(equals + 1);
  if (name == "name") {
    client->name = value;
    return is_client_name(value);
  }
  for (const Limit& limit : kLimits) {
    if (name != limit.name) continue;
    const auto [end, error] =
        std::from_chars(value.data(), value.data() + value.size(), client->*limit.field);
    return error == std::errc() && end == value.data() + value.size() && client->*limit.field != 0;
  }
  return false;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  if (!file.good() && !file.eof()) fail(path, "cannot be read");
  return text;
}

// The lock of those who change the file.
class EditLock {
 public:
  explicit EditLock(const std::string& path)
      : fd_(::open((path + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    if (fd_ < 0 || ::flock(fd_, LOCK_EX) != 0) {
      const int error = errno;
      if (fd_ >= 0) ::close(fd_);
      fail(path, std::string("cannot be locked: ") + std::strerror(error));
    }
  }
  ~EditLock() { ::close(fd_); }
  EditLock(const EditLock&) = delete;
  EditLock& operator=(const EditLock&) = delete;

 private:
  int fd_;
};

}  // namespace

bool is_client_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameCharacters &&
         std::ranges::all_of(name, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  c == '.' || c == '_' || c == '@' || c == '-';
         });
}

std::vector<Caller> parse_allowed_clients(std::string_view text) {
  std::vector<Caller> clients;
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::vector<std::string_view> words = words_of(line);
    if (words.empty() || words.front() == "#") continue;
    if (!is_curve_key(words.front())) {
      throw std::runtime_error(fmt::format(
          "line {}: expected a public key of 40 characters or a comment (\"# …\")", number));
    }
    Caller client;
    client.key = words.front();
    client.admin = false;
    for (std::size_t i = 1; i < words.size(); ++i) {
      if (read_word(words[i], &client)) continue;
      throw std::runtime_error(fmt::format(
          "line {}: expected name=NAME, admin, max_bytes=N, max_lines=N or max_jobs=N, found {}",
          number, words[i]));
    }
    if (std::ranges::any_of(clients, [&](const Caller& c) { return c.key == client.key; })) {
      throw std::runtime_error(fmt::format("line {}: this key was named before", number));
    }
    clients.push_back(std::move(client));
  }
  return clients;
}

std::string allowed_client_line(const Caller& client) {
  std::string line = client.key;
  if (!client.name.empty()) line += " name=" + client.name;
  if (client.admin) line += " admin";
  for (const Limit& limit : kLimits) {
    if (client.*limit.field != 0) line += fmt::format(" {}={}", limit.name, client.*limit.field);
  }
  return line + "\n";
}

void edit_allowed_clients(const std::string& path,
                          const std::function<void(std::vector<Caller>&)>& edit) {
  const EditLock lock(path);
  std::vector<Caller> clients = AllowedClients(path).all();
  edit(clients);
  std::string text = "# Clients that may connect: `batchmill keys allow`, `revoke`, `list`.\n";
  for (const Caller& client : clients) text += allowed_client_line(client);
  const std::string part = path + ".part";
  ::unlink(part.c_str());
  const int fd = ::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  bool written = fd >= 0 && ::fchmod(fd, 0600) == 0 &&
                 ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                 ::fsync(fd) == 0;
  int error = errno;
  if (fd >= 0) ::close(fd);
  if (written) {
    // A power cut must not bring a revoked key back.
    written = ::rename(part.c_str(), path.c_str()) == 0 && make_name_durable(path);
    error = errno;
  }
  if (!written) fail(path, std::string("cannot be written: ") + std::strerror(error));
}

bool AllowedClients::Version::same_as(const Version& other) const {
  const auto equal = [](const timespec& a, const timespec& b) {
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
  };
  return there == other.there && device == other.device && inode == other.inode &&
         size == other.size && equal(modified, other.modified) && equal(changed, other.changed);
}

AllowedClients::AllowedClients(std::string path) : path_(std::move(path)) { refresh(); }

AllowedClients::Version AllowedClients::version_on_disk() const {
  struct stat status = {};
  if (::stat(path_.c_str(), &status) != 0) return {};
  return {true, status.st_dev, status.st_ino, status.st_size, status.st_mtim, status.st_ctim};
}

bool AllowedClients::refresh() {
  const Version now = version_on_disk();
  if (now.same_as(version_)) return false;
  version_ = now;
  std::vector<Caller> clients;
  if (now.there) {
    struct stat status = {};
    if (::stat(path_.c_str(), &status) == 0 && (status.st_mode & kOthersMayWrite) != 0) {
      fail(path_, "may be written by others (chmod 600)");
    }
    try {
      clients = parse_allowed_clients(text_of(path_));
    } catch (const std::runtime_error& error) {
      fail(path_, error.what());
    }
  }
  std::ranges::sort(clients, {}, &Caller::key);
  clients_ = std::move(clients);
  return true;
}

const Caller* AllowedClients::find(std::string_view key) const {
  const auto it = std::ranges::lower_bound(clients_, key, {}, &Caller::key);
  return it != clients_.end() && it->key == key ? &*it : nullptr;
}

}  // namespace batchmill
