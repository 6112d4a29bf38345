#include "config/data_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace batchmill {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxSocketPathBytes = 107;  // sun_path without its zero
constexpr std::string_view kIpc = "ipc://";

// FNV-1a, 64 bits: names a socket after its data directory.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3ull;
  }
  return hash;
}

// The same directory has the same name however it was reached.
std::string absolute(const std::string& path) {
  std::error_code error;
  fs::path result = fs::weakly_canonical(fs::absolute(path), error);
  if (error) result = fs::absolute(path).lexically_normal();
  std::string text = result.string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

std::string own_runtime_directory() { return fmt::format("/tmp/batchmill-{}", ::getuid()); }

[[noreturn]] void refuse(const std::string& path, std::string_view what) {
  throw ConfigError(fmt::format("directory {} {}", path, what));
}

}  // namespace

std::string data_directory(const std::string& flag, const DaemonConfig& config,
                           const Environment& environment) {
  if (!flag.empty()) return absolute(flag);
  if (const auto data = lookup(environment, "BATCHMILL_DATA")) return absolute(*data);
  if (!config.storage.path.empty()) return absolute(config.storage.path);
  if (const auto state = lookup(environment, "XDG_STATE_HOME")) {
    return absolute(*state + "/batchmill");
  }
  if (const auto home = lookup(environment, "HOME")) {
    return absolute(*home + "/.local/state/batchmill");
  }
  throw ConfigError("no data directory: give --data DIR or set HOME");
}

void make_private_directory(const std::string& path) {
  std::error_code error;
  const fs::path parent = fs::path(path).parent_path();
  if (!parent.empty()) fs::create_directories(parent, error);
  if (error) refuse(parent.string(), fmt::format("cannot be made: {}", error.message()));
  if (::mkdir(path.c_str(), 0700) == 0) return;
  if (errno != EEXIST) refuse(path, fmt::format("cannot be made: {}", std::strerror(errno)));
  // Opened once, so that what is checked is what is changed.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) refuse(path, fmt::format("cannot be used: {}", std::strerror(errno)));
  struct stat status {};
  const bool known = ::fstat(descriptor, &status) == 0;
  const bool own = known && status.st_uid == ::geteuid();
  const bool is_private = own && ((status.st_mode & 0077) == 0 || ::fchmod(descriptor, 0700) == 0);
  ::close(descriptor);
  if (!own) refuse(path, "belongs to another user");
  if (!is_private) refuse(path, "cannot be made private (mode 0700)");
}

std::string default_queue_endpoint(const std::string& data_directory,
                                   const Environment& environment) {
  const std::string directory = absolute(data_directory);
  const std::string path = directory + "/queue.sock";
  if (path.size() <= kMaxSocketPathBytes) return std::string(kIpc) + path;
  const std::string name = fmt::format("/batchmill-{:016x}.sock", hash_of(directory));
  const auto runtime = lookup(environment, "XDG_RUNTIME_DIR");
  const std::string runtime_directory = runtime ? *runtime : own_runtime_directory();
  if (runtime_directory.size() + name.size() > kMaxSocketPathBytes) {
    throw ConfigError(fmt::format(
        "the paths of data directory {} and of XDG_RUNTIME_DIR are too long for a socket (at most "
        "{} bytes)",
        directory, kMaxSocketPathBytes));
  }
  return std::string(kIpc) + runtime_directory + name;
}

std::vector<std::string> queue_endpoints(const DaemonConfig& config,
                                         const std::string& data_directory,
                                         const Environment& environment) {
  std::vector<std::string> endpoints = {default_queue_endpoint(data_directory, environment)};
  const std::string& configured = config.queue.endpoint;
  if (!configured.empty() && configured != endpoints.front()) endpoints.push_back(configured);
  return endpoints;
}

std::string server_key_file(const DaemonConfig& config, const std::string& data_directory) {
  if (!config.queue.options.curve_secret_key_file.empty()) {
    return config.queue.options.curve_secret_key_file;
  }
  const std::string file = data_directory + "/" + kServerKeyName;
  std::error_code error;
  return fs::exists(file, error) ? file : "";
}

std::string allowed_clients_file(const DaemonConfig& config, const std::string& data_directory) {
  const std::string& file = config.queue.options.allowed_clients_file;
  return file.empty() ? data_directory + "/allowed_clients" : file;
}

void prepare_endpoint(const std::string& endpoint) {
  if (!endpoint.starts_with(kIpc)) return;
  const fs::path directory = fs::path(endpoint.substr(kIpc.size())).parent_path();
  if (directory.empty()) return;
  std::error_code error;
  const bool exists = fs::exists(directory, error);
  if (!exists || directory == own_runtime_directory()) make_private_directory(directory.string());
}

}  // namespace batchmill
