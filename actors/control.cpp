#include "actors/control.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <optional>
#include <string>

namespace batchmill {
namespace {

void announce(const ActorContext& context, const JobId& job) {
  send_to<DispatcherActor>(context.directory, changed_atom::value, job);
}

// cancel, pause, resume.
WireMessage change_job(const Json& header, const std::string& what, ActorContext& context,
                       const Queries& queries) {
  const Json named = header.value("job", Json());
  const std::optional<JobId> id =
      named.is_string() ? JobId::parse(named.get_ref<const std::string&>()) : std::nullopt;
  const std::optional<Job> job = id ? context.store->job(*id) : std::nullopt;
  if (!job) {
    return {error_header(header, "no_such_job",
                         fmt::format("there is no job {}",
                                     named.is_string() ? named.get<std::string>() : named.dump())),
            "", false};
  }
  bool changed = false;
  if (what == "cancel") {
    changed = context.store->end_job(*id, "batch_cancelled", context.clock->now_s());
    if (changed) {
      for (const DeviceWorkerActor& device : context.directory.devices()) {
        caf::anon_send(device, changed_atom::value, *id);
      }
    }
  } else if (!job->ended()) {
    changed = job->state.paused != (what == "pause");
    context.store->set_paused(*id, what == "pause");
  }
  if (changed) {
    spdlog::info("{}: {}", id->to_string(), what);
    announce(context, *id);
  }
  Json answer = {{"op", "response"}, {"changed", changed}};
  if (header.contains("id")) answer["id"] = header["id"];
  answer["batch"] = queries.batch_object(*context.store->job(*id));
  return {std::move(answer), "", false};
}

}  // namespace

ControlActor::behavior_type control(ControlActor::stateful_pointer<ControlState> self,
                                    std::shared_ptr<ActorContext> context) {
  self->state.queries = std::make_unique<Queries>(context->store, [context](const JobId& job) {
    return context->live->job(job, context->clock->steady_s());
  });
  // What a control before this one left unanswered.
  for (const auto& [peer, header] : context->requests.take_all()) {
    context->reply(
        peer, {error_header(header, "interrupted", "the daemon had to start anew: ask again"), "",
               false});
  }
  return {[=](frame_atom, const PeerMessage& frame) {
    const Json& header = frame.message.header;
    const Json named = header.value("what", Json());
    const std::string what = named.is_string() ? named.get<std::string>() : "";
    try {
      const bool changes = what == "cancel" || what == "pause" || what == "resume";
      context->reply(frame.peer, changes ? change_job(header, what, *context, *self->state.queries)
                                         : self->state.queries->answer(header));
    } catch (const StorageError& error) {
      context->reply(frame.peer, {error_header(header, "storage_error", error.what()), "", false});
      context->requests.remove(frame.peer, header);
      if (error.kind() != StorageError::Kind::kFull) throw;
    } catch (const Json::exception& error) {
      context->reply(frame.peer,
                     {error_header(header, "invalid_request", error.what()), "", false});
    }
    context->requests.remove(frame.peer, header);
  }};
}

}  // namespace batchmill
