// An emulated stream: work waits until somebody synchronizes, so that host memory which is changed
// too early, or read too early, gives wrong results as it may on a GPU.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "cuda/stream.h"

struct CUstream_st {
  std::vector<std::function<void()>> waiting;
  std::vector<std::function<void()>> recorded;
  bool is_recording = false;
  bool brings_results = false;  // some of the waiting work copies to the host
  std::thread::id owner;
  std::string failure;  // of work that nobody has asked about yet
};

namespace batchmill::emulation {

void enqueue(StreamHandle stream, std::function<void()> work);

}  // namespace batchmill::emulation
