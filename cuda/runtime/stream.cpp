#include "cuda/stream.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <new>
#include <vector>

#include "cuda/device_choice.h"
#include "cuda/runtime/check.h"

namespace batchmill {
namespace {

class RuntimeGraph : public CudaGraph {
 public:
  explicit RuntimeGraph(cudaGraphExec_t executable) : executable_(executable) {}
  ~RuntimeGraph() override { cudaGraphExecDestroy(executable_); }
  cudaGraphExec_t executable() const { return executable_; }

 private:
  cudaGraphExec_t executable_;
};

// Never throws.
struct Devices {
  Devices() {
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess || count == 0) {
      reason = status != cudaSuccess ? cudaGetErrorString(status) : "no device";
      return;
    }
    for (int device = 0; device < count; ++device) {
      int major = 0;
      if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) !=
          cudaSuccess) {
        major = 0;
      }
      majors.push_back(major);
    }
    numbers = usable_devices(majors);
    if (numbers.empty()) {
      reason = "no device has compute capability " + std::to_string(kMinComputeCapability) +
               ".0 or more";
    }
  }
  std::vector<int> majors;  // of all
  std::vector<int> numbers;  // of those that can be used
  std::string reason;  // why there is none
};

const Devices& devices() {
  static const Devices devices;
  return devices;
}

int number_of(std::int32_t device) {
  const std::vector<int>& numbers = devices().numbers;
  if (device < 0 || static_cast<std::size_t>(device) >= numbers.size()) {
    throw CudaError("there is no cuda:" + std::to_string(device));
  }
  return numbers[static_cast<std::size_t>(device)];
}

}  // namespace

void check_cuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // the error is the caller's now
    throw std::bad_alloc();
  }
  throw CudaError(std::string(what) + ": " + cudaGetErrorString(status));
}

bool kernels_can_wait() {
  static const bool all_can = [] {
    const Devices& all = devices();
    return std::all_of(all.numbers.begin(), all.numbers.end(), [&](int number) {
      return all.majors[static_cast<std::size_t>(number)] == 9;
    });
  }();
  return all_can;
}

std::int32_t count_devices(std::string* reason) {
  *reason = devices().reason;
  return static_cast<std::int32_t>(devices().numbers.size());
}

DeviceFacts device_facts(std::int32_t device) {
  const int number = number_of(device);
  cudaDeviceProp properties;
  check_cuda(cudaGetDeviceProperties(&properties, number), "properties of a device");
  check_cuda(cudaSetDevice(number), "choice of a device");
  DeviceFacts facts{properties.name, properties.multiProcessorCount, 0, 0,
                    static_cast<std::int32_t>(properties.sharedMemPerBlockOptin)};
  check_cuda(cudaMemGetInfo(&facts.free_bytes, &facts.total_bytes), "memory of a device");
  return facts;
}

void* allocate_device_memory(std::size_t bytes) {
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, bytes > 0 ? bytes : 1), "memory of a device");
  return memory;
}
void free_device_memory(void* memory) noexcept { cudaFree(memory); }

void* allocate_pinned_memory(std::size_t bytes) {
  void* memory = nullptr;
  check_cuda(cudaMallocHost(&memory, bytes > 0 ? bytes : 1), "pinned memory");
  return memory;
}
void free_pinned_memory(void* memory) noexcept { cudaFreeHost(memory); }

CudaStream::CudaStream(std::int32_t device) : device_(device) {
  use();
  check_cuda(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking), "a stream");
}
CudaStream::~CudaStream() { cudaStreamDestroy(handle_); }

void CudaStream::use() const {
  check_cuda(cudaSetDevice(number_of(device_)), "choice of a device");
}

void CudaStream::copy_to_device(void* device, const void* host, std::size_t bytes) {
  check_cuda(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, handle_),
             "a copy to the device");
}
void CudaStream::copy_to_host(void* host, const void* device, std::size_t bytes) {
  check_cuda(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, handle_),
             "a copy to the host");
}
void CudaStream::copy_on_device(void* target, const void* source, std::size_t bytes) {
  check_cuda(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToDevice, handle_),
             "a copy on the device");
}
void CudaStream::fill(void* device, std::uint8_t byte, std::size_t bytes) {
  check_cuda(cudaMemsetAsync(device, byte, bytes, handle_), "filling memory");
}
void CudaStream::synchronize() { check_cuda(cudaStreamSynchronize(handle_), "work on the device"); }

void CudaStream::begin_capture() {
  check_cuda(cudaStreamBeginCapture(handle_, cudaStreamCaptureModeThreadLocal), "a recording");
}
std::unique_ptr<CudaGraph> CudaStream::end_capture() {
  cudaGraph_t graph = nullptr;
  check_cuda(cudaStreamEndCapture(handle_, &graph), "a recording");
  cudaGraphExec_t executable = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  check_cuda(status, "a recording");
  return std::make_unique<RuntimeGraph>(executable);
}
void CudaStream::abandon_capture() noexcept {
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(handle_, &graph);  // says once more what is wrong
  if (graph != nullptr) cudaGraphDestroy(graph);
  cudaGetLastError();
}
void CudaStream::launch(const CudaGraph& graph) {
  check_cuda(cudaGraphLaunch(static_cast<const RuntimeGraph&>(graph).executable(), handle_),
             "the launch of a graph");
}

CudaEvent::CudaEvent() {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event");
  handle_ = event;
}
CudaEvent::~CudaEvent() { cudaEventDestroy(static_cast<cudaEvent_t>(handle_)); }
void CudaEvent::record(const CudaStream& stream) {
  check_cuda(cudaEventRecord(static_cast<cudaEvent_t>(handle_), stream.handle()), "an event");
}
void CudaEvent::wait() {
  check_cuda(cudaEventSynchronize(static_cast<cudaEvent_t>(handle_)), "work on the device");
}

}  // namespace batchmill
