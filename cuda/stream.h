// A device's queue of work, its memory, and recorded sequences of work (graphs). Two
// implementations under one set of names: cuda/runtime/ for GPUs, cuda/emulation/ for tests; a
// program or plugin links one of them. Streams and what they make belong to one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

struct CUstream_st;  // CUDA's name for what a cudaStream_t points to

namespace batchmill {

using StreamHandle = CUstream_st*;

// A call to the device failed; says which and why.
class CudaError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct DeviceFacts {
  std::string name;
  std::int32_t multiprocessors = 0;
  std::size_t total_bytes = 0;
  std::size_t free_bytes = 0;
  std::int32_t shared_bytes = 0;  // that a block may have
};

// Of those that can be used: the others have no numbers here. 0 and the reason if there is none;
// never throws.
std::int32_t count_devices(std::string* reason);
DeviceFacts device_facts(std::int32_t device);

// Of the current device. Throws std::bad_alloc or CudaError.
void* allocate_device_memory(std::size_t bytes);
void free_device_memory(void* memory) noexcept;
void* allocate_pinned_memory(std::size_t bytes);
void free_pinned_memory(void* memory) noexcept;

class CudaGraph {
 public:
  virtual ~CudaGraph() = default;
};

class CudaStream {
 public:
  // Makes `device` the calling thread's current one.
  explicit CudaStream(std::int32_t device);
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  StreamHandle handle() const { return handle_; }

  // The calling thread has the stream from now on, and its device as its current one.
  void use() const;

  // Asynchronous. Host memory must be pinned and stay as it is until the copy has run.
  void copy_to_device(void* device, const void* host, std::size_t bytes);
  void copy_to_host(void* host, const void* device, std::size_t bytes);
  void copy_on_device(void* target, const void* source, std::size_t bytes);
  void fill(void* device, std::uint8_t byte, std::size_t bytes);

  // Waits for all work; throws what went wrong in it.
  void synchronize();

  // Between the two calls work is recorded and not run. Its arguments are the graph's for ever.
  void begin_capture();
  std::unique_ptr<CudaGraph> end_capture();
  // Ends a recording that has failed, wherever it has.
  void abandon_capture() noexcept;
  void launch(const CudaGraph& graph);

 private:
  StreamHandle handle_ = nullptr;
  std::int32_t device_ = 0;
};

// A place in a stream's work.
class CudaEvent {
 public:
  CudaEvent();
  ~CudaEvent();
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  void record(const CudaStream& stream);
  // Waits until the stream's work before the last record() has run; at once if there was none.
  void wait();

 private:
  void* handle_ = nullptr;
};

}  // namespace batchmill
