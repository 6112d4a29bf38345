#include "cuda/stream.h"

#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include "cuda/emulation/block_runner.h"
#include "cuda/emulation/devices.h"
#include "cuda/emulation/work_queue.h"

namespace batchmill {
namespace {

constexpr std::size_t kAlignment = 256;

std::mutex streams_mutex;
std::vector<CUstream_st*> streams;

std::vector<CUstream_st*> streams_of_thread() {
  const std::lock_guard lock(streams_mutex);
  std::vector<CUstream_st*> own;
  for (CUstream_st* stream : streams) {
    if (stream->owner == std::this_thread::get_id()) own.push_back(stream);
  }
  return own;
}

struct EmulatedGraph : CudaGraph {
  std::vector<std::function<void()>> work;
};

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

}  // namespace emulation

std::int32_t count_devices(std::string*) { return emulation::num_devices(); }

DeviceFacts device_facts(std::int32_t device) {
  return {"emulated threads", 4, emulation::total_bytes(), emulation::free_bytes(device)};
}

void* allocate_device_memory(std::size_t bytes) { return emulation::take_memory(bytes); }
// As on a device, work that may use the memory is done first.
void free_device_memory(void* memory) noexcept {
  for (CUstream_st* stream : streams_of_thread()) run_waiting(stream);
  emulation::give_memory(memory);
}
void* allocate_pinned_memory(std::size_t bytes) {
  void* memory = ::operator new (bytes > 0 ? bytes : 1, std::align_val_t{kAlignment});
  std::memset(memory, 0xFF, bytes);
  return memory;
}
void free_pinned_memory(void* memory) noexcept {
  ::operator delete (memory, std::align_val_t{kAlignment});
}

CudaStream::CudaStream(std::int32_t device) : device_(device) {
  emulation::use_device(device);
  handle_ = new CUstream_st;
  handle_->owner = std::this_thread::get_id();
  const std::lock_guard lock(streams_mutex);
  streams.push_back(handle_);
}
CudaStream::~CudaStream() {
  const std::lock_guard lock(streams_mutex);
  std::erase(streams, handle_);
  delete handle_;
}

void CudaStream::use() const {
  emulation::use_device(device_);
  const std::lock_guard lock(streams_mutex);
  handle_->owner = std::this_thread::get_id();
}

void CudaStream::copy_to_device(void* device, const void* host, std::size_t bytes) {
  emulation::enqueue(handle_, [=] { std::memcpy(device, host, bytes); });
}
void CudaStream::copy_to_host(void* host, const void* device, std::size_t bytes) {
  handle_->brings_results = true;
  emulation::enqueue(handle_, [=] { std::memcpy(host, device, bytes); });
}
void CudaStream::copy_on_device(void* target, const void* source, std::size_t bytes) {
  emulation::enqueue(handle_, [=] { std::memcpy(target, source, bytes); });
}
void CudaStream::fill(void* device, std::uint8_t byte, std::size_t bytes) {
  emulation::enqueue(handle_, [=] { std::memset(device, byte, bytes); });
}

void CudaStream::synchronize() {
  if (handle_->is_recording) throw CudaError("a stream that records was synchronized");
  if (std::exchange(handle_->brings_results, false)) emulation::count_result(device_);
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
