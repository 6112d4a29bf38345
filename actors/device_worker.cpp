#include "actors/device_worker.h"

#include <spdlog/spdlog.h>

#include "engine/embedder.h"
#include "engine/engine.h"

namespace batchmill {
namespace {

std::unique_ptr<StepEngine> make_engine(const DeviceSetup& setup) {
  if (setup.encoder != nullptr) return std::make_unique<Embedder>(setup.options, setup.encoder);
  return std::make_unique<Engine>(setup.options, setup.runner, setup.tokenizer);
}

}  // namespace

DeviceWorkerActor::behavior_type device_worker(
    DeviceWorkerActor::stateful_pointer<DeviceWorkerState> self,
    std::shared_ptr<ActorContext> context, DeviceSetup setup) {
  const auto me = caf::actor_cast<caf::weak_actor_ptr>(self->ctrl());
  DeviceLoop::Callbacks callbacks;
  callbacks.pull = [context](const WorkRequest& request) {
    send_to<DispatcherActor>(context->directory, pull_atom::value, request);
  };
  callbacks.completed = [context](LineCompletion completion) {
    send_to<WriterActor>(context->directory, done_atom::value, std::move(completion));
  };
  callbacks.returned = [context](std::vector<LineKey> lines) {
    for (const LineKey& line : lines) context->live->lines_returned(line.job, 1);
    send_to<DispatcherActor>(context->directory, returned_atom::value, std::move(lines));
  };
  callbacks.failed = [me](std::string reason) {
    if (const auto handle = caf::actor_cast<DeviceWorkerActor>(me)) {
      caf::anon_send(handle, done_atom::value, std::move(reason));
    }
  };
  self->state.loop = std::make_shared<DeviceLoop>(
      setup.index, setup.name, setup.options, make_engine(setup), setup.runner_mutex,
      std::move(callbacks), context->clock, context->live);
  context->directory.add_loop(self->state.loop);
  return {
      [=](work_atom, const std::vector<WorkItem>& items) { self->state.loop->push(items); },
      [=](changed_atom, const JobId& job) { self->state.loop->drop_job(job); },
      [=](done_atom, const std::string& reason) {
        spdlog::error("device {} has failed: {}", setup.name, reason);
        context->devices.note_failure(setup.index, reason);
        self->quit(caf::exit_reason::user_shutdown);
      },
  };
}

}  // namespace batchmill
