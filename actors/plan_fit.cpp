#include "actors/plan_fit.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "actors/json_bridge.h"

namespace batchmill {
namespace {

bool has_room(const PlanEntry& entry, const ModelCatalog::Entry& model) {
  std::size_t longest = 0;
  for (const auto& prompt : entry.prompts) longest = std::max(longest, prompt.size());
  const std::int64_t room = std::min(model.context_tokens, model.pool_tokens);
  return static_cast<std::int64_t>(longest) + entry.max_tokens <= room;
}

}  // namespace

PlanFit::PlanFit(std::shared_ptr<ActorContext> context,
                 std::shared_ptr<const LinePreparer> line_preparer)
    : context_(std::move(context)), line_preparer_(std::move(line_preparer)) {}

WorkPicker::Fitted PlanFit::operator()(const PlanKey& key, PlanEntry entry) const {
  const ModelCatalog::Entry* model = context_->catalog->find_by_fingerprint(entry.fingerprint);
  if (model == nullptr || has_room(entry, *model)) return {key, std::move(entry), "", ""};
  JobStore& store = *context_->store;
  const std::optional<Job> job = store.job(entry.key.job);
  const std::optional<StoredLine> line = store.line(entry.key);
  if (!job || !line) return {};
  PreparedLine prepared = line_preparer_->prepare(
      {job->id, job->request.priority, job->state.created_at_s}, *line, context_->clock->now_us());
  if (prepared.failure) {
    const Json record = Json::parse(prepared.failure->output);
    return {key, std::move(entry), prepared.failure->error_code,
            record["error"]["message"].get<std::string>()};
  }
  if (!prepared.entry) return {};
  prepared.entry->short_lane = entry.short_lane;
  store.replace_plan(std::span(&key, 1), std::span(&*prepared.entry, 1));
  if (prepared.entry->fingerprint != entry.fingerprint) {
    // The name that the line gives is another model's now.
    send_to<DispatcherActor>(context_->directory, plan_atom::value);
    return {};
  }
  PlanKey new_key = make_plan_key(*prepared.entry);
  return {std::move(new_key), std::move(prepared.entry), "", ""};
}

}  // namespace batchmill
