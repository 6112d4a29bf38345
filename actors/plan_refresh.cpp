#include "actors/plan_refresh.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <optional>
#include <utility>
#include <vector>

namespace batchmill {
namespace {

// Small, so that new jobs are prepared in between: a page is prepared on the preparer's own thread.
constexpr std::size_t kPageEntries = 64;

// Prepares the page's lines again. Those that cannot run with the model as it is now end as
// failures.
std::size_t prepare_again(const std::vector<PlanItem>& items, ActorContext& context,
                          const LinePreparer& line_preparer) {
  JobStore& store = *context.store;
  std::vector<PlanKey> old_keys;
  std::vector<PlanEntry> entries;
  std::vector<LineResult> failures;
  std::vector<PlanKey> failed_keys;
  for (const PlanItem& item : items) {
    const std::optional<Job> job = store.job(item.line.job);
    const std::optional<StoredLine> line = store.line(item.line);
    if (!job || !line) continue;
    PreparedLine prepared = line_preparer.prepare(
        {job->id, job->request.priority, job->state.created_at_s}, *line, context.clock->now_us());
    if (prepared.entry) {
      const std::optional<PlanKeyParts> parts = parse_plan_key(item.key);
      prepared.entry->short_lane = parts && parts->short_lane;
      old_keys.push_back(item.key);
      entries.push_back(std::move(*prepared.entry));
    } else if (prepared.failure) {
      failed_keys.push_back(item.key);
      failures.push_back(std::move(*prepared.failure));
    }
  }
  if (!entries.empty()) store.replace_plan(old_keys, entries);
  if (!failures.empty()) {
    store.commit_results(failures, failed_keys, context.clock->now_s());
    store.end_finished_jobs(context.clock->now_s());
  }
  return entries.size() + failures.size();
}

void park(const std::vector<PlanItem>& items, ActorContext& context) {
  for (const PlanItem& item : items) {
    context.live->warn(item.line.job,
                       fmt::format("model '{}' is not configured: its lines wait", item.model));
  }
}

}  // namespace

PlanRefresh::PlanRefresh(std::shared_ptr<ActorContext> context,
                         std::shared_ptr<const LinePreparer> line_preparer)
    : context_(std::move(context)), line_preparer_(std::move(line_preparer)) {
  for (PlanLevel& level : context_->store->plan_levels()) {
    if (context_->catalog->find_by_fingerprint(level.fingerprint) == nullptr) {
      levels_.push_back(std::move(level));
    }
  }
}

bool PlanRefresh::step() {
  if (levels_.empty()) return false;
  PlanLevel& level = levels_.back();
  PlanPage page = context_->store->read_plan({level.first, level.limit}, kPageEntries);
  std::vector<PlanItem> stale;
  std::vector<PlanItem> parked;
  for (PlanItem& item : page.items) {
    (context_->catalog->has(item.model) ? stale : parked).push_back(std::move(item));
  }
  const std::size_t num_prepared = prepare_again(stale, *context_, *line_preparer_);
  park(parked, *context_);
  if (num_prepared > 0) send_to<DispatcherActor>(context_->directory, plan_atom::value);
  num_prepared_ += num_prepared;
  level.first = std::move(page.next);
  if (page.at_end) levels_.pop_back();
  if (levels_.empty() && num_prepared_ > 0) {
    spdlog::info("{} lines were prepared again: their model has changed", num_prepared_);
  }
  return !levels_.empty();
}

}  // namespace batchmill
