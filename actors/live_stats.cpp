#include "actors/live_stats.h"

#include <algorithm>
#include <numeric>

namespace batchmill {

void LiveStats::Rate::advance(std::int64_t now_s) {
  if (first_s < 0) {
    first_s = now_s;
    last_s = now_s;
  }
  const std::int64_t steps = std::min(now_s - last_s, kWindow);
  for (std::int64_t i = 1; i <= steps; ++i) {
    counts[static_cast<std::size_t>((last_s + i) % kWindow)] = 0;
  }
  last_s = std::max(last_s, now_s);
}

void LiveStats::Rate::add(std::uint64_t count, std::int64_t now_s) {
  advance(now_s);
  counts[static_cast<std::size_t>(last_s % kWindow)] += count;
}

double LiveStats::Rate::per_second(std::int64_t now_s) const {
  if (first_s < 0) return 0.0;
  Rate now = *this;
  now.advance(now_s);
  const auto sum = std::accumulate(now.counts.begin(), now.counts.end(), std::uint64_t{0});
  const std::int64_t span_s = std::clamp<std::int64_t>(now.last_s - now.first_s + 1, 1, kWindow);
  return static_cast<double>(sum) / static_cast<double>(span_s);
}

void LiveStats::lines_started(const JobId& job, std::uint64_t lines) {
  const std::lock_guard lock(mutex_);
  jobs_[job].running += lines;
}

void LiveStats::lines_returned(const JobId& job, std::uint64_t lines) {
  const std::lock_guard lock(mutex_);
  if (const auto it = jobs_.find(job); it != jobs_.end()) {
    it->second.running -= std::min(it->second.running, lines);
  }
}

void LiveStats::tokens_computed(const JobId& job, std::uint64_t tokens, std::int64_t now_s) {
  const std::lock_guard lock(mutex_);
  jobs_[job].tokens.add(tokens, now_s);
  all_tokens_.add(tokens, now_s);
}

void LiveStats::line_finished(const JobId& job, std::int64_t now_s) {
  const std::lock_guard lock(mutex_);
  jobs_[job].lines.add(1, now_s);
}

void LiveStats::warn(const JobId& job, const std::string& warning) {
  const std::lock_guard lock(mutex_);
  jobs_[job].warnings.insert(warning);
}

void LiveStats::keep_only(const std::vector<JobId>& unfinished) {
  const std::lock_guard lock(mutex_);
  std::erase_if(jobs_, [&](const auto& entry) {
    return !std::binary_search(unfinished.begin(), unfinished.end(), entry.first);
  });
}

void LiveStats::forget_running() {
  const std::lock_guard lock(mutex_);
  for (auto& [id, entry] : jobs_) entry.running = 0;
}

LiveJob LiveStats::job(const JobId& job, std::int64_t now_s) const {
  const std::lock_guard lock(mutex_);
  const auto it = jobs_.find(job);
  if (it == jobs_.end()) return {};
  const Entry& entry = it->second;
  return {entry.running,
          entry.tokens.per_second(now_s),
          entry.lines.per_second(now_s),
          {entry.warnings.begin(), entry.warnings.end()}};
}

double LiveStats::tokens_per_second(std::int64_t now_s) const {
  const std::lock_guard lock(mutex_);
  return all_tokens_.per_second(now_s);
}

}  // namespace batchmill
