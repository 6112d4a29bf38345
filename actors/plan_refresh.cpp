#include "actors/plan_refresh.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <optional>
#include <utility>
#include <vector>

namespace batchmill {
namespace {

constexpr std::size_t kPageEntries = 256;

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
      old_keys.push_back(item.key);
      entries.push_back(std::move(*prepared.entry));
    } else if (prepared.failure) {
      failed_keys.push_back(item.key);
      failures.push_back(std::move(*prepared.failure));
    }
  }
  if (!entries.empty()) store.replace_plan(old_keys, entries);
  if (!failures.empty()) store.commit_results(failures, failed_keys, context.clock->now_s());
  return entries.size() + failures.size();
}

void park(const std::vector<PlanItem>& items, ActorContext& context) {
  for (const PlanItem& item : items) {
    context.live->warn(item.line.job,
                       fmt::format("model '{}' is not configured: its lines wait", item.model));
  }
}

}  // namespace

void refresh_plan(ActorContext& context, const LinePreparer& line_preparer) {
  std::size_t num_prepared = 0;
  for (const PlanLevel& level : context.store->plan_levels()) {
    if (context.catalog->find_by_fingerprint(level.fingerprint) != nullptr) continue;
    PlanKey position = level.first;
    bool at_end = false;
    while (!at_end) {
      PlanPage page = context.store->read_plan({position, level.limit}, kPageEntries);
      at_end = page.at_end;
      position = std::move(page.next);
      std::vector<PlanItem> stale;
      std::vector<PlanItem> parked;
      for (PlanItem& item : page.items) {
        (context.catalog->has(item.model) ? stale : parked).push_back(std::move(item));
      }
      num_prepared += prepare_again(stale, context, line_preparer);
      park(parked, context);
    }
  }
  if (num_prepared > 0) {
    spdlog::info("{} lines were prepared again: their model has changed", num_prepared);
    send_to<DispatcherActor>(context.directory, plan_atom::value);
  }
}

}  // namespace batchmill
