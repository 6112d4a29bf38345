// A device's mailbox: hands messages to the loop that owns the Engine. It dies with its loop.
#pragma once

#include <memory>
#include <mutex>

#include "actors/context.h"
#include "actors/device_loop.h"

namespace batchmill {

struct DeviceWorkerState {
  static inline const char* name = "device_worker";
  std::shared_ptr<DeviceLoop> loop;
};

// What a device worker runs: one of `runner` and `encoder`. They and `tokenizer` outlive it.
struct DeviceSetup {
  std::uint32_t index = 0;
  std::string name;  // "cpu:0"
  EngineOptions options;
  ModelRunner* runner = nullptr;
  EncoderRunner* encoder = nullptr;
  std::shared_ptr<std::mutex> runner_mutex;  // held by the loop that uses the runner
  const Tokenizer* tokenizer = nullptr;
  bool can_be_lost = false;
};

DeviceWorkerActor::behavior_type device_worker(
    DeviceWorkerActor::stateful_pointer<DeviceWorkerState> self,
    std::shared_ptr<ActorContext> context, DeviceSetup setup);

}  // namespace batchmill

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(batchmill::DeviceSetup)
