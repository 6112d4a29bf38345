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

// What the store does not know.
WireMessage describe_devices(const Json& header, const ActorContext& context) {
  Json answer = {{"op", "response"}, {"devices", context.devices.describe()}};
  if (header.contains("id")) answer["id"] = header["id"];
  return {std::move(answer), "", false};
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

PeerMessage take_next(ControlState& state) {
  const PeerId peer = std::move(state.turns.front());
  state.turns.pop_front();
  const auto it = state.waiting.find(peer);
  PeerMessage frame = std::move(it->second.front());
  it->second.pop_front();
  if (it->second.empty()) {
    state.waiting.erase(it);
  } else {
    state.turns.push_back(peer);
  }
  return frame;
}

void answer(const PeerMessage& frame, ActorContext& context, const Queries& queries) {
  const Json& header = frame.message.header;
  const Json named = header.value("what", Json());
  const std::string what = named.is_string() ? named.get<std::string>() : "";
  try {
    const bool changes = what == "cancel" || what == "pause" || what == "resume";
    // Nobody waits for the answer: only what the request changes counts.
    const bool gone = frame.message.sender_gone && *frame.message.sender_gone;
    if (gone && !changes) return;
    if (what == "devices") return context.reply(frame.peer, describe_devices(header, context));
    context.reply(frame.peer, changes ? change_job(frame.message, what, context, queries)
                                      : queries.answer(header, frame.message.caller));
  } catch (const StorageError& error) {
    // The client hears of it; a record that is damaged must not end what works.
    const bool missing = error.kind() == StorageError::Kind::kMissing;
    if (!missing) spdlog::error("a request for {} failed: {}", what, error.what());
    const bool full = error.kind() == StorageError::Kind::kFull;
    context.reply(frame.peer, failure(header,
                                      missing ? "no_such_job"
                                      : full  ? "storage_full"
                                              : "storage_error",
                                      error.what()));
  } catch (const Json::exception& error) {
    context.reply(frame.peer, failure(header, "invalid_request", error.what()));
  }
}

}  // namespace

ControlActor::behavior_type control(ControlActor::stateful_pointer<ControlState> self,
                                    std::shared_ptr<ActorContext> context) {
  end_on_exceptions(self);
  self->state.queries = std::make_unique<Queries>(context->store, [context](const JobId& job) {
    LiveJob live = context->live->job(job, context->clock->steady_s());
    for (std::string& trouble : context->devices.troubles()) {
      live.warnings.push_back(std::move(trouble));
    }
    return live;
  });
  // What a control before this one left unanswered.
  for (const auto& [peer, header] : context->requests.take_all()) {
    context->reply(peer, failure(header, "interrupted", "the daemon had to start anew: ask again"));
  }
  return {
      [=](frame_atom, const PeerMessage& frame) {
        ControlState& state = self->state;
        if (state.turns.empty()) self->send(self, next_atom::value);
        std::deque<PeerMessage>& waiting = state.waiting[frame.peer];
        if (waiting.empty()) state.turns.push_back(frame.peer);
        waiting.push_back(frame);
      },
      [=](next_atom) {
        const PeerMessage frame = take_next(self->state);
        if (!self->state.turns.empty()) self->send(self, next_atom::value);
        answer(frame, *context, *self->state.queries);
        context->requests.remove(frame.peer, frame.message.header);
      },
  };
}

}  // namespace batchmill
