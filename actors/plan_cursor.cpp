#include "actors/plan_cursor.h"

#include <utility>

namespace batchmill {

PlanCursor::PlanCursor(const JobStore* store, PlanLevel level)
    : store_(store), level_(std::move(level)) {}

void PlanCursor::start_sweep() {
  position_ = level_.first;
  passed_.clear();
  at_end_ = false;
  frozen_serial_ = store_->plan_serial();
  num_joiners_ = 0;
  num_admitted_ = 0;
}

void PlanCursor::refresh() {
  if (num_admitted_ <= kFirstEntries) {
    const std::uint32_t admitted = num_admitted_;
    buffer_.clear();
    start_sweep();
    num_admitted_ = admitted;
    return;
  }
  if (buffer_.empty()) return;
  buffer_.clear();
  position_ = passed_.empty() ? level_.first : passed_ + '\0';
  at_end_ = false;
}

bool PlanCursor::in_sweep(const PlanItem& item) const {
  if (item.serial <= frozen_serial_) return true;
  return num_joiners_ < kMaxJoinersPerSweep && !last_admitted_.empty() &&
         common_prefix_tokens(last_admitted_, item.key) >= kSharedPrefixTokens;
}

std::optional<PlanItem> PlanCursor::next(const std::function<bool(const PlanItem&)>& admissible,
                                         const std::set<JobId>& skipped) {
  // The rest of the sweep under way, then at most one whole sweep.
  int sweeps_started = 0;
  while (true) {
    while (!buffer_.empty()) {
      PlanItem item = std::move(buffer_.front());
      buffer_.pop_front();
      passed_ = item.key;
      if (!in_sweep(item) || !admissible(item)) continue;
      if (item.serial > frozen_serial_) ++num_joiners_;
      last_admitted_ = item.key;
      ++num_admitted_;
      return item;
    }
    if (at_end_) {
      if (sweeps_started == 1) return std::nullopt;
      ++sweeps_started;
      start_sweep();
    }
    read_on(skipped);
  }
}

void PlanCursor::read_on(const std::set<JobId>& skipped) {
  PlanPage page = store_->read_plan({position_, level_.limit}, kRefillEntries, skipped);
  at_end_ = page.at_end;
  position_ = std::move(page.next);
  buffer_.assign(std::make_move_iterator(page.items.begin()),
                 std::make_move_iterator(page.items.end()));
}

std::int32_t PlanCursor::shared_with_rest(const std::set<JobId>& skipped) {
  while (buffer_.empty() && !at_end_) read_on(skipped);
  if (buffer_.empty()) return -1;
  // The order is that of the prefixes: nobody behind the next entry shares more than it does.
  return static_cast<std::int32_t>(common_prefix_tokens(last_admitted_, buffer_.front().key));
}

}  // namespace batchmill
