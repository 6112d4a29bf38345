// The whole system in one process: store, queue, actors, devices. batchmilld runs one in the
// foreground; `batchmill run` embeds one.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/clock.h"
#include "engine/encoder_runner.h"
#include "engine/model.h"
#include "engine/model_runner.h"
#include "engine/options.h"
#include "queue/options.h"
#include "storage/options.h"
#include "storage/records.h"

namespace batchmill {

class Directory;

// A model that lines may name.
struct ServedModel {
  std::string name;  // what `model` in the ledger says
  std::vector<std::string> aliases;  // further names; "*": any name
  std::shared_ptr<const Model> model;
  std::int32_t max_context_tokens = 0;  // 0: the model's own
  Price price;
};

// What runs a model.
struct Device {
  std::string name;  // "cpu:0"
  // One of the two: a model that generates text, or an encoder that makes embeddings.
  std::unique_ptr<ModelRunner> runner = nullptr;
  std::unique_ptr<EncoderRunner> encoder = nullptr;
  // It may be gone for good when its steps fail, and is not used again then; others go on, or what
  // DaemonOptions::replace_lost makes.
  bool can_be_lost = false;
};
std::vector<Device> only(Device device);

// Makes the devices that run a model, at least one; called once per model, before any line is
// taken.
using DeviceFactory = std::function<std::vector<Device>(const ServedModel&)>;

// Makes what a model runs on when it has lost its last device; nothing: its lines wait until the
// process starts anew. Called on an actor's thread, as often as that happens; may take the time of
// loading the model. Throws std::runtime_error.
using DeviceReplacement = std::function<std::optional<Device>(const ServedModel&)>;

struct DaemonOptions {
  std::string data_directory;
  StorageOptions storage;
  std::int64_t retention_s = 0;  // jobs that ended longer ago are removed; 0: never
  QueueOptions queue;  // endpoints besides the control socket
  EngineOptions engine;
  std::int32_t default_max_tokens = 1024;  // chat lines that give none
  std::int32_t max_choices = 128;
  std::int32_t preparer_threads = 2;
  std::shared_ptr<const Clock> clock = std::make_shared<Clock>();
  std::int32_t scheduler_threads = 0;  // CAF's; 0: what the machine has, at least 4
  DeviceReplacement replace_lost = nullptr;
  // A model has lost its last device and nothing takes its place. Called from an actor's thread.
  std::function<void(const std::string& trouble)> on_lines_wait = [](const std::string&) {};
  // The actors die faster than starting them anew can help: the process should end. Called at most
  // a few times, from an actor's thread.
  std::function<void(std::string reason)> on_fatal = [](const std::string&) {};
  // The disk has no room for the store. Work waits and goes on by itself when there is; called
  // again and again meanwhile, from an actor's thread.
  std::function<void(const std::string& reason)> on_storage_full = [](const std::string&) {};
};

class Daemon {
 public:
  // Locks the data directory, opens the store, makes the devices, binds, starts. Throws
  // StorageError, std::runtime_error. models.front() is `default`.
  Daemon(DaemonOptions options, std::vector<ServedModel> models, DeviceFactory device_factory);
  ~Daemon();  // as stop(0)

  // Stops admitting, lets running lines finish, keeps what is finished, puts the rest back, all
  // within `drain_timeout` or 10 s, if that is more. A step that is under way is waited for however
  // long it takes, and so is a model that is being loaded in the place of a lost device.
  void stop(std::chrono::milliseconds drain_timeout);

  // Prices for lines that finish from now on, by model name.
  void set_prices(const std::vector<ServedModel>& models);

  const std::string& control_endpoint() const;  // ipc://DATA/control.sock
  const Directory& directory() const;  // of the actors that live now, for tests

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace batchmill
