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

WireMessage failure(const Json& header, std::string_view code, std::string_view message) {
  return {error_header(header, code, message), "", false};
}

// cancel, pause, resume.
WireMessage change_job(const WireMessage& request, const std::string& what, ActorContext& context,
                       const Queries& queries) {
  const Json& header = request.header;
  const Json named = header.value("job", Json());
  const std::optional<JobId> id =
      named.is_string() ? JobId::parse(named.get_ref<const std::string&>()) : std::nullopt;
  std::optional<Job> job = id ? context.store->job(*id) : std::nullopt;
  if (!job || !request.caller.may_see(job->request.owner)) {
    const std::string text = named.is_string() ? named.get<std::string>() : named.dump();
    return failure(header, "no_such_job", fmt::format("there is no job {}", text));
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
  // An upload that holds no line takes its job away meanwhile.
  if (std::optional<Job> now = context.store->job(*id)) job = std::move(now);
  answer["batch"] = queries.batch_object(*job);
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
    context->reply(peer, failure(header, "interrupted", "the daemon had to start anew: ask again"));
  }
  return {[=](frame_atom, const PeerMessage& frame) {
    const Json& header = frame.message.header;
    const Json named = header.value("what", Json());
    const std::string what = named.is_string() ? named.get<std::string>() : "";
    try {
      const bool changes = what == "cancel" || what == "pause" || what == "resume";
      context->reply(frame.peer,
                     changes ? change_job(frame.message, what, *context, *self->state.queries)
                             : self->state.queries->answer(header, frame.message.caller));
    } catch (const StorageError& error) {
      // The client hears of it; a record that is damaged must not end what works.
      const bool gone = error.kind() == StorageError::Kind::kMissing;
      if (!gone) spdlog::error("a request for {} failed: {}", what, error.what());
      context->reply(frame.peer,
                     failure(header, gone ? "no_such_job" : "storage_error", error.what()));
    } catch (const Json::exception& error) {
      context->reply(frame.peer, failure(header, "invalid_request", error.what()));
    }
    context->requests.remove(frame.peer, header);
  }};
}

}  // namespace batchmill
