#include "engine/cpu/cpu_memory.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <new>
#include <optional>
#include <string>
#include <thread>

namespace batchmill {
namespace {

constexpr std::size_t kCacheLine = 64;
constexpr std::size_t kHugePage = 2 << 20;

class CpuBuffer : public DeviceBuffer {
 public:
  CpuBuffer(void* data, std::size_t bytes) : DeviceBuffer(data, bytes) {}
  ~CpuBuffer() override { std::free(data()); }
};

// Directories of this process's control group, from its own up to the root.
std::vector<std::string> cgroup_directories() {
  std::vector<std::string> directories;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (!line.starts_with("0::/")) continue;  // the unified hierarchy
    std::string path = line.substr(3);
    while (path.size() > 1) {
      directories.push_back("/sys/fs/cgroup" + path);
      path.resize(std::max<std::size_t>(path.rfind('/'), 1));
    }
  }
  directories.push_back("/sys/fs/cgroup");
  return directories;
}

std::optional<std::int64_t> read_integer(const std::string& path) {
  std::ifstream stream(path);
  std::int64_t value = 0;
  if (stream >> value) return value;
  return std::nullopt;  // absent, or "max"
}

// A key of "key value" lines.
std::optional<std::int64_t> read_key(const std::string& path, const std::string& key) {
  std::ifstream stream(path);
  std::string name;
  std::int64_t value = 0;
  std::string rest;
  while (stream >> name >> value) {
    if (name == key) return value;
    std::getline(stream, rest);
  }
  return std::nullopt;
}

}  // namespace

std::unique_ptr<DeviceBuffer> allocate_cpu_buffer(std::size_t bytes) {
  const std::size_t alignment = bytes >= 2 * kHugePage ? kHugePage : kCacheLine;
  const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment;
  void* data = std::aligned_alloc(alignment, rounded * alignment);
  if (data == nullptr) throw std::bad_alloc();
  // Advice only: without huge pages everything works, a little slower.
  if (alignment == kHugePage) (void)::madvise(data, rounded * alignment, MADV_HUGEPAGE);
  return std::make_unique<CpuBuffer>(data, bytes);
}

void* CpuArena::allocate(std::size_t bytes) {
  constexpr std::size_t kChunk = std::size_t{32} << 20;
  const std::size_t rounded = (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
  if (buffers_.empty() || rounded > buffers_.back()->size_bytes() - used_bytes_) {
    buffers_.push_back(allocate_cpu_buffer(std::max(rounded, kChunk)));
    used_bytes_ = 0;
  }
  void* address = static_cast<std::byte*>(buffers_.back()->data()) + used_bytes_;
  used_bytes_ += rounded;
  return address;
}

std::int64_t available_memory_bytes() {
  std::int64_t available =
      read_key("/proc/meminfo", "MemAvailable:").value_or(std::int64_t{1} << 20) * 1024;
  for (const std::string& directory : cgroup_directories()) {
    const auto limit = read_integer(directory + "/memory.max");
    const auto used = read_integer(directory + "/memory.current");
    if (!limit || !used) continue;
    // Page cache counts as used and is given back under pressure.
    const std::int64_t cached = read_key(directory + "/memory.stat", "inactive_file").value_or(0);
    available = std::min(available, *limit - *used + cached);
  }
  const auto v1_limit = read_integer("/sys/fs/cgroup/memory/memory.limit_in_bytes");
  const auto v1_used = read_integer("/sys/fs/cgroup/memory/memory.usage_in_bytes");
  if (v1_limit && v1_used) available = std::min(available, *v1_limit - *v1_used);
  return std::max<std::int64_t>(available, 0);
}

std::int32_t available_threads() {
  double threads = std::max(1u, std::thread::hardware_concurrency());
  cpu_set_t mask;
  if (::sched_getaffinity(0, sizeof(mask), &mask) == 0) {
    threads = std::max(1, CPU_COUNT(&mask));
  }
  for (const std::string& directory : cgroup_directories()) {
    std::ifstream stream(directory + "/cpu.max");  // "quota period", or "max period"
    double quota = 0;
    double period = 0;
    if (stream >> quota >> period && period > 0) threads = std::min(threads, quota / period);
  }
  const auto v1_quota = read_integer("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  const auto v1_period = read_integer("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  if (v1_quota && v1_period && *v1_quota > 0 && *v1_period > 0) {
    threads = std::min(threads, static_cast<double>(*v1_quota) / static_cast<double>(*v1_period));
  }
  return std::max(1, static_cast<std::int32_t>(std::ceil(threads)));
}

}  // namespace batchmill
