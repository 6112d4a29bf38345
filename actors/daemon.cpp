#include "actors/daemon.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <latch>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "actors/care_requests.h"
#include "actors/context.h"
#include "actors/heap.h"
#include "actors/supervisor.h"
#include "engine/embedder.h"
#include "engine/engine.h"
#include "storage/data_directory.h"
#include "storage/life_mark.h"

namespace batchmill {
namespace {

// Actors block in the store, so there must be more threads than cores on a small machine.
constexpr std::int32_t kMinSchedulerThreads = 4;
// Of the time to stop in, so much is for what comes after lines may run no longer: the step under
// way, what is finished, the actors' ends.
constexpr std::chrono::milliseconds kEndReserve{5'000};
// That takes what it takes, but no less is waited for where the time to stop in is shorter.
constexpr std::chrono::milliseconds kLeastTime{10'000};
constexpr std::chrono::milliseconds kLeastWait{500};
constexpr std::chrono::seconds kStartTimeout{60};

}  // namespace

class Daemon::Impl {
 public:
  Impl(DaemonOptions options, std::vector<ServedModel> models, const DeviceFactory& device_factory);
  ~Impl() { stop(std::chrono::milliseconds(0)); }

  void stop(std::chrono::milliseconds drain_timeout);
  void set_prices(const std::vector<ServedModel>& models);
  const std::string& control_endpoint() const { return control_endpoint_; }
  const Directory& directory() const { return context_->directory; }

 private:
  void look_at_last_end();
  void make_devices(std::vector<ServedModel> models, const DeviceFactory& device_factory);
  DeviceSetup setup_of(std::size_t index, const Device& device) const;
  std::optional<DeviceSetup> replace_device(std::size_t index);
  void route(JobServer& server, PeerId peer, WireMessage message);
  template <class Handle, class... Ts>
  bool ask(const Handle& handle, std::chrono::milliseconds timeout, Ts... xs);

  DaemonOptions options_;
  std::string control_endpoint_;
  std::unique_ptr<DataDirectory> directory_;
  std::unique_ptr<JobStore> store_;
  std::optional<LifeMark> life_mark_;
  LiveStats live_;
  std::vector<Device> devices_;  // in the order of their places …
  std::mutex replacements_mutex_;
  std::vector<Device> replacements_;  // … and what took the place of lost ones
  std::vector<EngineOptions> engine_options_;  // [models]
  std::vector<std::size_t> model_of_device_;  // [devices]
  std::unique_ptr<ModelCatalog> catalog_;
  std::shared_ptr<ActorContext> context_;
  caf::actor_system_config system_config_;
  std::unique_ptr<caf::actor_system> system_;
  caf::actor supervisor_;
  std::latch server_ready_{1};
  std::unique_ptr<JobServer> server_;
  bool stopped_ = false;
};

Daemon::Impl::Impl(DaemonOptions options, std::vector<ServedModel> models,
                   const DeviceFactory& device_factory)
    : options_(std::move(options)),
      control_endpoint_(DataDirectory::control_endpoint(options_.data_directory)),
      directory_(std::make_unique<DataDirectory>(options_.data_directory,
                                                 DataDirectory::Lock::kExclusive)),
      store_(
          JobStore::open(directory_->store_path(), options_.storage, JobStore::Mode::kReadWrite)) {
  Heap::keep_few();
  make_devices(std::move(models), device_factory);
  look_at_last_end();

  context_ = std::make_shared<ActorContext>();
  context_->options = options_;
  context_->store = store_.get();
  context_->catalog = catalog_.get();
  context_->clock = options_.clock.get();
  context_->live = &live_;
  context_->life_mark = &*life_mark_;
  context_->reply = [this](const PeerId& peer, WireMessage message) {
    server_->send(peer, std::move(message));
  };

  SupervisorSetup setup;
  setup.line_preparer =
      std::make_shared<LinePreparer>(catalog_.get(), options_.default_max_tokens,
                                     options_.max_choices, options_.queue.max_line_bytes);
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    const ServedModel& served = catalog_->entries()[model_of_device_[i]].served;
    context_->devices.add(devices_[i].name, served.name);
    setup.devices.push_back(setup_of(i, devices_[i]));
    setup.device_fingerprints.push_back(served.model->fingerprint());
  }
  setup.replace = [this](std::uint32_t lost) { return replace_device(lost); };
  setup.on_fatal = options_.on_fatal;

  // The server comes before the actors that answer through it; its first messages wait for them.
  QueueOptions queue = options_.queue;
  queue.endpoints.insert(queue.endpoints.begin(), control_endpoint_);
  server_ = std::make_unique<JobServer>(
      std::move(queue), "batchmill",
      [this](JobServer& server, PeerId peer, WireMessage message) {
        server_ready_.wait();
        route(server, std::move(peer), std::move(message));
      },
      [](const std::string& what) { spdlog::error("{}", what); });

  const std::int32_t threads =
      options_.scheduler_threads > 0
          ? options_.scheduler_threads
          : std::max(kMinSchedulerThreads,
                     static_cast<std::int32_t>(std::thread::hardware_concurrency()));
  system_config_.set("scheduler.max-threads", static_cast<std::size_t>(threads));
  // One queue that idle threads sleep at. Those of the stealing policy look around a thousand times
  // a second each, in the place of threads that compute.
  system_config_.set("scheduler.policy", caf::atom("sharing"));
  system_ = std::make_unique<caf::actor_system>(system_config_);
  supervisor_ = system_->spawn(supervisor, context_, std::move(setup));
  const bool ready = ask(supervisor_, kStartTimeout, ready_atom::value);
  server_ready_.count_down();
  if (!ready) throw std::runtime_error("the actors did not start");
}

// Lines that ran when the process before ended have an attempt behind them, unless they cannot be
// why it ended.
void Daemon::Impl::look_at_last_end() {
  life_mark_.emplace(options_.data_directory);
  switch (life_mark_->last_end()) {
    case LastEnd::kInOrder:
      break;
    case LastEnd::kFromOutside:
      store_->clear_all_attempts();
      spdlog::info("the process before was killed, or the machine went down: its lines run again");
      break;
    case LastEnd::kItself:
      spdlog::warn(
          "the process before ended itself ({}): if a line that ran is why, it is found out and "
          "fails",
          life_mark_->how());
  }
}

void Daemon::Impl::make_devices(std::vector<ServedModel> models,
                                const DeviceFactory& device_factory) {
  std::vector<ModelCatalog::Entry> entries;
  for (ServedModel& served : models) {
    const std::int32_t trained = served.model->config().max_context_tokens;
    EngineOptions engine = options_.engine;
    engine.max_context_tokens =
        served.max_context_tokens > 0 ? std::min(served.max_context_tokens, trained) : trained;
    engine.eos_token_ids = served.model->eos_token_ids();
    ModelCatalog::Entry entry;
    entry.context_tokens = engine.max_context_tokens;
    entry.pool_tokens = engine.max_context_tokens;
    for (Device& device : device_factory(served)) {
      if (device.encoder != nullptr) {
        // Nothing but the tokens of a step bounds how many sequences share it.
        engine.max_num_seqs = std::max(engine.max_num_seqs, engine.max_num_batched_tokens);
        entry.context_tokens = Embedder(engine, device.encoder.get()).max_sequence_tokens();
        entry.pool_tokens = entry.context_tokens;
        entry.embedding_size = device.encoder->embedding_size();
      } else {
        // A line must fit whichever device takes it.
        entry.pool_tokens = std::min(
            entry.pool_tokens, Engine(engine, device.runner.get(), nullptr).max_sequence_tokens());
      }
      entry.device += (entry.device.empty() ? "" : ", ") + device.name;
      model_of_device_.push_back(entries.size());
      devices_.push_back(std::move(device));
    }
    engine_options_.push_back(engine);
    entry.served = std::move(served);
    entries.push_back(std::move(entry));
  }
  catalog_ = std::make_unique<ModelCatalog>(std::move(entries));
}

DeviceSetup Daemon::Impl::setup_of(std::size_t index, const Device& device) const {
  const std::size_t model = model_of_device_[index];
  DeviceSetup setup;
  setup.index = static_cast<std::uint32_t>(index);
  setup.name = device.name;
  setup.can_be_lost = device.can_be_lost;
  setup.options = engine_options_[model];
  setup.runner = device.runner.get();
  setup.encoder = device.encoder.get();
  setup.runner_mutex = std::make_shared<std::mutex>();
  setup.tokenizer = catalog_->entries()[model].served.model->tokenizer();
  return setup;
}

// The lost device stays until the end: its driver may not answer when it is given up.
std::optional<DeviceSetup> Daemon::Impl::replace_device(std::size_t index) {
  const std::size_t model = model_of_device_[index];
  const ModelCatalog::Entry& entry = catalog_->entries()[model];
  std::optional<Device> device =
      options_.replace_lost ? options_.replace_lost(entry.served) : std::nullopt;
  if (!device) return std::nullopt;
  // Lines were prepared for what the lost device's cache held.
  const std::int32_t tokens =
      Engine(engine_options_[model], device->runner.get(), nullptr).max_sequence_tokens();
  if (tokens < std::min(entry.context_tokens, entry.pool_tokens)) {
    throw std::runtime_error(
        fmt::format("{} has room for a KV cache of {} tokens, and lines may need {}", device->name,
                    tokens, std::min(entry.context_tokens, entry.pool_tokens)));
  }
  const std::lock_guard lock(replacements_mutex_);
  replacements_.push_back(std::move(*device));
  return setup_of(index, replacements_.back());
}

void Daemon::Impl::route(JobServer& server, PeerId peer, WireMessage message) {
  const std::string op = message.header.value("op", "");
  if (op == "request" && is_care_request(message.header)) {
    if (!message.caller.admin) {
      server.send(peer, {error_header(message.header, "not_allowed",
                                      "this takes the key of an admin, or the daemon's machine"),
                         "", false});
      return;
    }
    send_to<CaretakerActor>(context_->directory, frame_atom::value,
                            PeerMessage{std::move(peer), std::move(message)});
  } else if (op == "request") {
    context_->requests.add(peer, message.header);
    send_to<ControlActor>(context_->directory, frame_atom::value,
                          PeerMessage{std::move(peer), std::move(message)});
  } else if (op == "open" || op == "data" || op == "end" || op == "abort") {
    send_to<IntakeActor>(context_->directory, frame_atom::value,
                         PeerMessage{std::move(peer), std::move(message)});
  } else {
    server.send(peer, {error_header(message.header, "unknown_op",
                                    fmt::format("there is no operation '{}'", op)),
                       "", false});
  }
}

template <class Handle, class... Ts>
bool Daemon::Impl::ask(const Handle& handle, std::chrono::milliseconds timeout, Ts... xs) {
  if (!handle) return false;
  bool done = false;
  caf::scoped_actor self{*system_};
  self->request(handle, timeout, xs...)
      .receive([&](bool answer) { done = answer; }, [](const caf::error&) {});
  return done;
}

void Daemon::Impl::stop(std::chrono::milliseconds drain_timeout) {
  if (std::exchange(stopped_, true)) return;
  context_->stop_care = true;
  // One deadline for all waits.
  const auto start = std::chrono::steady_clock::now();
  const auto drained = start + drain_timeout - std::min(kEndReserve, drain_timeout / 4);
  const auto end = start + std::max(drain_timeout, kLeastTime);
  const auto time_left = [&] {
    return std::max(kLeastWait, std::chrono::duration_cast<std::chrono::milliseconds>(
                                    end - std::chrono::steady_clock::now()));
  };
  const std::vector<std::shared_ptr<DeviceLoop>> loops = context_->directory.loops();
  for (const auto& loop : loops) loop->drain();
  std::vector<std::shared_ptr<DeviceLoop>> busy;
  for (const auto& loop : loops) {
    if (!loop->wait_idle(drained)) busy.push_back(loop);
  }
  for (const auto& loop : busy) loop->give_back();
  for (const auto& loop : busy) loop->wait_idle(end);
  if (!ask(context_->directory.get<WriterActor>(), time_left(), flush_atom::value, true)) {
    spdlog::warn("some finished lines could not be written; they will run again");
  }
  ask(context_->directory.get<DispatcherActor>(), time_left(), flush_atom::value, true);
  ask(supervisor_, time_left(), flush_atom::value, true);
  supervisor_ = nullptr;
  context_->directory.clear();
  system_.reset();  // waits for all actors, which answer through the server
  server_.reset();
  try {
    store_->flush();
  } catch (const StorageError& error) {
    // All of it is in the log, which the next start reads.
    spdlog::warn("the store could not be tidied up: {}", error.what());
  }
}

void Daemon::Impl::set_prices(const std::vector<ServedModel>& models) {
  for (const ServedModel& served : models) catalog_->set_price(served.name, served.price);
}

std::vector<Device> only(Device device) {
  std::vector<Device> devices;
  devices.push_back(std::move(device));
  return devices;
}

Daemon::Daemon(DaemonOptions options, std::vector<ServedModel> models, DeviceFactory device_factory)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(models), device_factory)) {}

Daemon::~Daemon() = default;

void Daemon::stop(std::chrono::milliseconds drain_timeout) { impl_->stop(drain_timeout); }

void Daemon::set_prices(const std::vector<ServedModel>& models) { impl_->set_prices(models); }

const std::string& Daemon::control_endpoint() const { return impl_->control_endpoint(); }

const Directory& Daemon::directory() const { return impl_->directory(); }

}  // namespace batchmill
