#include "cuda/stream.h"

#include <atomic>
#include <cstring>
#include <mutex>
#include <new>
#include <set>
#include <utility>

#include "cuda/emulation/block_runner.h"
#include "cuda/emulation/devices.h"
#include "cuda/emulation/work_queue.h"

namespace batchmill {
namespace {

constexpr std::size_t kAlignment = 256;

std::mutex streams_mutex;
std::vector<CUstream_st*> streams;
std::set<const void*> loaded_kernels;  // of any device

std::atomic<emulation::RecordingFault> recording_fault{emulation::RecordingFault::kNone};

// A recording is lost with the first thing in it that cannot be recorded.
[[noreturn]] void break_recording(CUstream_st* stream, const char* why) {
  stream->is_broken = true;
  throw CudaError(why);
}

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

// An event's place in its stream's work.
struct Place {
  CUstream_st* stream = nullptr;
  std::int64_t end = 0;  // how much work was queued before it
};

// The first `count` pieces of what waits. Behind a piece that fails, the others are left out.
void run_waiting(CUstream_st* stream, std::size_t count) {
  bool has_failed = false;
  for (; count > 0; --count) {
    const CUstream_st::Work work = std::move(stream->waiting.front());
    stream->waiting.pop_front();
    ++stream->num_run;
    if (has_failed) continue;
    try {
      work.run();
    } catch (const emulation::EmulationError& error) {
      stream->failure = error.what();
      has_failed = true;
    }
  }
}

// The same for somebody who wants results: the moment at which devices fail.
void wait_for(CUstream_st* stream, std::size_t count) {
  bool brings_results = false;
  for (std::size_t i = 0; i < count; ++i) {
    brings_results |= std::exchange(stream->waiting[i].brings_result, false);
  }
  if (brings_results) emulation::count_result(stream->device);
  run_waiting(stream, count);
}

void report_failure(CUstream_st* stream) {
  if (!stream->failure.empty()) throw CudaError(std::exchange(stream->failure, {}));
}

}  // namespace

namespace emulation {

void enqueue(StreamHandle stream, std::function<void()> work) {
  if (stream->is_recording) {
    if (stream->is_broken || recording_fault == RecordingFault::kWork) {
      break_recording(stream, "work that cannot be recorded");
    }
    stream->recorded.push_back(std::move(work));
  } else {
    stream->waiting.push_back({std::move(work)});
  }
}

void load_kernel(StreamHandle stream, const void* kernel) {
  const std::lock_guard lock(streams_mutex);
  if (loaded_kernels.contains(kernel)) return;
  if (stream->is_recording) break_recording(stream, "a kernel is loaded in a recording");
  loaded_kernels.insert(kernel);
}

void set_recording_fault(RecordingFault fault) { recording_fault = fault; }

std::size_t num_waiting() {
  std::size_t count = 0;
  for (const CUstream_st* stream : streams_of_thread()) count += stream->waiting.size();
  return count;
}

}  // namespace emulation

std::int32_t count_devices(std::string*) { return emulation::num_devices(); }

DeviceFacts device_facts(std::int32_t device) {
  return {"emulated threads", 4, emulation::total_bytes(), emulation::free_bytes(device),
          static_cast<std::int32_t>(emulation::shared_bytes_of_block())};
}

void* allocate_device_memory(std::size_t bytes) { return emulation::take_memory(bytes); }
// As on a device, work that may use the memory is done first.
void free_device_memory(void* memory) noexcept {
  for (CUstream_st* stream : streams_of_thread()) run_waiting(stream, stream->waiting.size());
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
  handle_->device = device;
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
  emulation::enqueue(handle_, [=] { std::memcpy(host, device, bytes); });
  if (!handle_->is_recording) handle_->waiting.back().brings_result = true;
}
void CudaStream::copy_on_device(void* target, const void* source, std::size_t bytes) {
  emulation::enqueue(handle_, [=] { std::memcpy(target, source, bytes); });
}
void CudaStream::fill(void* device, std::uint8_t byte, std::size_t bytes) {
  emulation::enqueue(handle_, [=] { std::memset(device, byte, bytes); });
}

void CudaStream::synchronize() {
  if (handle_->is_recording) {
    break_recording(handle_, "a stream that records was synchronized");
  }
  wait_for(handle_, handle_->waiting.size());
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
  if (std::exchange(handle_->is_broken, false)) throw CudaError("the recording is lost");
  if (recording_fault == emulation::RecordingFault::kEnd) throw CudaError("a graph is refused");
  return graph;
}
void CudaStream::abandon_capture() noexcept {
  handle_->recorded.clear();
  handle_->is_recording = handle_->is_broken = false;
}
void CudaStream::launch(const CudaGraph& graph) {
  for (const auto& item : static_cast<const EmulatedGraph&>(graph).work) {
    emulation::enqueue(handle_, item);
  }
}

// Waiting for an event runs what its stream has before it, and no more.
CudaEvent::CudaEvent() : handle_(new Place) {}
CudaEvent::~CudaEvent() { delete static_cast<Place*>(handle_); }
void CudaEvent::record(const CudaStream& stream) {
  const CUstream_st& own = *stream.handle();
  *static_cast<Place*>(handle_) = {stream.handle(),
                                   own.num_run + static_cast<std::int64_t>(own.waiting.size())};
}
void CudaEvent::wait() {
  const Place place = std::exchange(*static_cast<Place*>(handle_), {});
  if (place.stream == nullptr) return;
  const std::int64_t count = place.end - place.stream->num_run;
  if (count > 0) wait_for(place.stream, static_cast<std::size_t>(count));
  report_failure(place.stream);
}

}  // namespace batchmill
