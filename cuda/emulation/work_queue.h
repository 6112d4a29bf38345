// An emulated stream: work waits until somebody synchronizes, or waits for an event behind it, so
// that host memory which is changed too early, or read too early, gives wrong results as it may on
// a GPU.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "cuda/stream.h"

struct CUstream_st {
  struct Work {
    std::function<void()> run;
    bool brings_result = false;  // copies to the host
  };
  std::deque<Work> waiting;
  std::int64_t num_run = 0;  // work that no longer waits
  std::vector<std::function<void()>> recorded;
  bool is_recording = false;
  bool is_broken = false;  // what it records
  std::int32_t device = 0;
  std::thread::id owner;
  std::string failure;  // of work that nobody has asked about yet
};

namespace batchmill::emulation {

// Throws CudaError if it is recorded and that fails.
void enqueue(StreamHandle stream, std::function<void()> work);

// A kernel's code comes to the device when it is first launched. While a stream records it cannot:
// CudaError.
void load_kernel(StreamHandle stream, const void* kernel);

// For tests: where recordings of this process fail from now on.
enum class RecordingFault { kNone, kWork, kEnd };
void set_recording_fault(RecordingFault fault);

// Pieces of work that wait in the calling thread's streams.
std::size_t num_waiting();

}  // namespace batchmill::emulation
