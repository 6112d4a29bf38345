// What another process of this user holds, as /proc tells it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

namespace batchmill::testing {

// A field of /proc/PID/status in kB; 0 when the process is gone.
inline std::uint64_t status_bytes(int pid, const std::string& field) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field + ":")) return std::stoull(line.substr(field.size() + 1)) << 10;
  }
  return 0;
}

inline std::uint64_t resident_bytes(int pid) { return status_bytes(pid, "VmRSS"); }
// The most since the process began, or since the last call of forget_peak().
inline std::uint64_t peak_resident_bytes(int pid) { return status_bytes(pid, "VmHWM"); }
inline void forget_peak(int pid) {
  std::ofstream("/proc/" + std::to_string(pid) + "/clear_refs") << "5";
}

inline std::size_t open_files(int pid) {
  std::error_code gone;
  const std::filesystem::directory_iterator files("/proc/" + std::to_string(pid) + "/fd", gone);
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

// Of these, connections and what listens for them.
inline std::size_t open_sockets(int pid) {
  std::size_t count = 0;
  std::error_code gone;
  const std::filesystem::directory_iterator files("/proc/" + std::to_string(pid) + "/fd", gone);
  for (const auto& file : files) {
    count += std::filesystem::read_symlink(file, gone).string().starts_with("socket:") ? 1 : 0;
  }
  return count;
}

}  // namespace batchmill::testing
