#include "actors/caretaker.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <stdexcept>

#include "actors/care_requests.h"

namespace batchmill {
namespace {

constexpr std::chrono::minutes kRetentionInterval{10};

void prune_old_jobs(ActorContext& context) {
  const std::int64_t ended_before_s = context.clock->now_s() - context.options.retention_s;
  try {
    const StoreCare::PruneReport report = context.store->prune(ended_before_s, context.stop_care);
    if (report.jobs != 0) {
      spdlog::info("{} jobs with {} lines are past their retention and were removed", report.jobs,
                   report.lines);
    }
  } catch (const StorageError& error) {
    spdlog::error("old jobs could not be removed: {}", error.what());
  }
}

void answer(const PeerMessage& frame, CaretakerState& state, ActorContext& context) {
  const Json& header = frame.message.header;
  const Json ticket = header.value("ticket", Json());
  const std::string name = ticket.is_string() ? ticket.get<std::string>() : "";
  if (name.empty() || name != state.last_ticket) {
    state.last_answer =
        care_response(header, *context.store, context.clock->now_s(), context.stop_care);
    state.last_ticket = name;
    spdlog::log(state.last_answer["op"] == "error" ? spdlog::level::warn : spdlog::level::info,
                "{}", care_text(header, state.last_answer));
  }
  Json copy = state.last_answer;
  if (header.contains("id")) copy["id"] = header["id"];
  context.reply(frame.peer, {std::move(copy), "", false});
}

}  // namespace

CaretakerActor::behavior_type caretaker(CaretakerActor::stateful_pointer<CaretakerState> self,
                                        std::shared_ptr<ActorContext> context) {
  end_on_exceptions(self);
  if (context->options.retention_s > 0) self->send(self, tick_atom::value);
  return {
      [=](frame_atom, const PeerMessage& frame) { answer(frame, self->state, *context); },
      [=](tick_atom) {
        prune_old_jobs(*context);
        self->delayed_send(self, kRetentionInterval, tick_atom::value);
      },
  };
}

}  // namespace batchmill
