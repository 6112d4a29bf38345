// What all actors share: the store, the models, the clock, and where to find each other.
#pragma once

#include <algorithm>
#include <atomic>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "actors/clock.h"
#include "actors/daemon.h"
#include "actors/device_loop.h"
#include "actors/device_states.h"
#include "actors/interfaces.h"
#include "actors/live_stats.h"
#include "actors/model_catalog.h"
#include "queue/job_server.h"
#include "storage/job_store.h"
#include "storage/life_mark.h"

namespace batchmill {

// An actor that throws ends, and its supervisor says why: CAF does not. Call it when it starts.
template <class Self>
void end_on_exceptions(Self self) {
  self->set_exception_handler([](std::exception_ptr& thrown) -> caf::error {
    try {
      std::rethrow_exception(thrown);
    } catch (const std::exception& error) {
      return caf::make_error(caf::sec::runtime_error, std::string(error.what()));
    } catch (...) {
      return caf::make_error(caf::sec::runtime_error);
    }
  });
}

// The handles of the actors that live now. The supervisor changes them when it starts an actor
// anew; everyone else looks one up when about to send. Thread-safe.
class Directory {
 public:
  template <class Handle>
  Handle get() const {
    const std::lock_guard lock(mutex_);
    return std::get<Handle>(handles_);
  }
  template <class Handle>
  void set(Handle handle) {
    const std::lock_guard lock(mutex_);
    std::get<Handle>(handles_) = std::move(handle);
  }
  std::vector<DeviceWorkerActor> devices() const {
    const std::lock_guard lock(mutex_);
    return devices_;
  }
  void set_devices(std::vector<DeviceWorkerActor> devices) {
    const std::lock_guard lock(mutex_);
    devices_ = std::move(devices);
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    handles_ = {};
    devices_.clear();
  }
  // The loops that run now; they belong to their device workers.
  std::vector<std::shared_ptr<DeviceLoop>> loops() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<DeviceLoop>> alive;
    for (const auto& weak : loops_) {
      if (auto loop = weak.lock()) alive.push_back(std::move(loop));
    }
    return alive;
  }
  void add_loop(const std::shared_ptr<DeviceLoop>& loop) {
    const std::lock_guard lock(mutex_);
    std::erase_if(loops_, [](const auto& weak) { return weak.expired(); });
    loops_.push_back(loop);
  }

 private:
  mutable std::mutex mutex_;
  std::tuple<IntakeActor, ControlActor, CaretakerActor, PreparerActor, DispatcherActor, WriterActor>
      handles_;
  std::vector<DeviceWorkerActor> devices_;
  std::vector<std::weak_ptr<DeviceLoop>> loops_;
};

// Sends to the actor that now holds the role; a message to a role that is being started anew is
// lost, and every actor looks at the store when it starts.
template <class Handle, class... Ts>
void send_to(const Directory& directory, Ts&&... xs) {
  if (const Handle handle = directory.get<Handle>()) {
    caf::anon_send(handle, std::forward<Ts>(xs)...);
  }
}

// Requests that control has not answered yet, so that clients hear of it when it dies. Thread-safe.
class OpenRequests {
 public:
  using Request = std::pair<PeerId, Json>;  // who asked, and the header

  void add(const PeerId& peer, const Json& header) {
    const std::lock_guard lock(mutex_);
    requests_[peer].push_back(header);
  }
  // The oldest one like it has been answered.
  void remove(const PeerId& peer, const Json& header) {
    const std::lock_guard lock(mutex_);
    const auto of_peer = requests_.find(peer);
    if (of_peer == requests_.end()) return;
    std::deque<Json>& headers = of_peer->second;
    const auto it = std::find(headers.begin(), headers.end(), header);
    if (it != headers.end()) headers.erase(it);
    if (headers.empty()) requests_.erase(of_peer);
  }
  std::deque<Request> take_all() {
    const std::lock_guard lock(mutex_);
    std::deque<Request> all;
    for (auto& [peer, headers] : std::exchange(requests_, {})) {
      for (Json& header : headers) all.emplace_back(peer, std::move(header));
    }
    return all;
  }

 private:
  std::mutex mutex_;
  std::map<PeerId, std::deque<Json>> requests_;  // of each peer, the oldest first
};

struct ActorContext {
  DaemonOptions options;
  JobStore* store = nullptr;
  ModelCatalog* catalog = nullptr;
  const Clock* clock = nullptr;
  LiveStats* live = nullptr;
  LifeMark* life_mark = nullptr;  // absent where no process keeps one
  std::function<void(const PeerId&, WireMessage)> reply;  // to a client; never blocks
  Directory directory;
  DeviceStates devices;
  OpenRequests requests;
  std::atomic<bool> stop_care{false};  // the daemon ends: so do a backup, a compaction …
  // Clients with an open upload: the intake's own, kept here for the one that takes its place.
  std::map<JobId, PeerId> upload_peers;
};

}  // namespace batchmill
