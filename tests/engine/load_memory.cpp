// Loads a model as the daemon does and prints this process's memory in bytes, at its peak and now.
// Usage: engine_load_memory MODEL f32|bf16
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <string>

#include "engine/cpu/cpu_runner.h"
#include "engine/model.h"

namespace {

// "VmHWM:" or "VmRSS:" of this process.
long long status_bytes(const char* key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) return std::stoll(line.substr(std::strlen(key))) * 1024;
  }
  return -1;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) return 2;
  const auto model = batchmill::Model::open(argv[1]);
  batchmill::CpuOptions options;
  options.dtype =
      std::string(argv[2]) == "f32" ? batchmill::CpuDType::kF32 : batchmill::CpuDType::kBF16;
  options.threads = 2;
  options.num_blocks = 8;
  const auto runner = batchmill::make_cpu_runner(model->tensors(), model->config(), options);
  std::printf("%lld %lld\n", status_bytes("VmHWM:"), status_bytes("VmRSS:"));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
