#include "cuda/stream.h"

#include <cstring>
#include <new>
#include <utility>

#include "cuda/emulation/block_runner.h"
#include "cuda/emulation/work_queue.h"

namespace batchmill {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kDeviceBytes = std::size_t{1} << 30;

int device_count = 1;

std::vector<CUstream_st*>& streams_of_thread() {
  static thread_local std::vector<CUstream_st*> streams;
  return streams;
}

struct EmulatedGraph : CudaGraph {
  std::vector<std::function<void()>> work;
};

void* allocate_filled(std::size_t bytes) {
  void* memory = ::operator new (bytes > 0 ? bytes : 1, std::align_val_t{kAlignment});
  std::memset(memory, 0xFF, bytes);  // NaN in every float format
  return memory;
}

void release_memory(void* memory) noexcept {
  ::operator delete (memory, std::align_val_t{kAlignment});
}

void run_waiting(CUstream_st* stream) {
  const auto work = std::exchange(stream->waiting, {});
  try {
    for (const auto& item : work) item();
  } catch (const emulation::EmulationError& error) {
    stream->failure = error.what();
  }
}

void report_failure(CUstream_st* stream) {
  if (!stream->failure.empty()) throw CudaError(std::exchange(stream->failure, {}));
}

}  // namespace

namespace emulation {

void enqueue(StreamHandle stream, std::function<void()> work) {
  (stream->is_recording ? stream->recorded : stream->waiting).push_back(std::move(work));
}

void set_device_count(int count) { device_count = count; }

}  // namespace emulation

std::int32_t count_devices(std::string*) { return device_count; }

DeviceFacts device_facts(std::int32_t) {
  return {"emulated threads", 4, kDeviceBytes, kDeviceBytes};
}

void* allocate_device_memory(std::size_t bytes) { return allocate_filled(bytes); }
// As on a device, work that may use the memory is done first.
void free_device_memory(void* memory) noexcept {
  for (CUstream_st* stream : streams_of_thread()) run_waiting(stream);
  release_memory(memory);
}
void* allocate_pinned_memory(std::size_t bytes) { return allocate_filled(bytes); }
void free_pinned_memory(void* memory) noexcept { release_memory(memory); }

CudaStream::CudaStream(std::int32_t device) : handle_(new CUstream_st) {
  if (device < 0 || device >= device_count) {
    delete handle_;
    throw CudaError("no such emulated device");
  }
  streams_of_thread().push_back(handle_);
}
CudaStream::~CudaStream() {
  std::erase(streams_of_thread(), handle_);
  delete handle_;
}

void CudaStream::copy_to_device(void* device, const void* host, std::size_t bytes) {
  emulation::enqueue(handle_, [=] { std::memcpy(device, host, bytes); });
}
void CudaStream::copy_to_host(void* host, const void* device, std::size_t bytes) {
  emulation::enqueue(handle_, [=] { std::memcpy(host, device, bytes); });
}
void CudaStream::fill(void* device, std::uint8_t byte, std::size_t bytes) {
  emulation::enqueue(handle_, [=] { std::memset(device, byte, bytes); });
}

void CudaStream::synchronize() {
  if (handle_->is_recording) throw CudaError("a stream that records was synchronized");
  run_waiting(handle_);
  report_failure(handle_);
}

void CudaStream::begin_capture() {
  if (handle_->is_recording) throw CudaError("a stream that records was told to record");
  handle_->is_recording = true;
}
std::unique_ptr<CudaGraph> CudaStream::end_capture() {
  auto graph = std::make_unique<EmulatedGraph>();
  graph->work = std::exchange(handle_->recorded, {});
  handle_->is_recording = false;
  return graph;
}
void CudaStream::launch(const CudaGraph& graph) {
  for (const auto& item : static_cast<const EmulatedGraph&>(graph).work) {
    emulation::enqueue(handle_, item);
  }
}

// An event keeps the stream; waiting for it runs everything that the stream has.
CudaEvent::CudaEvent() = default;
CudaEvent::~CudaEvent() = default;
void CudaEvent::record(const CudaStream& stream) { handle_ = stream.handle(); }
void CudaEvent::wait() {
  if (handle_ == nullptr) return;
  auto* stream = static_cast<CUstream_st*>(std::exchange(handle_, nullptr));
  run_waiting(stream);
  report_failure(stream);
}

}  // namespace batchmill
