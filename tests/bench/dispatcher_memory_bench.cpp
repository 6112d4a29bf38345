// What the dispatcher's policy holds in memory while it works through a plan of many entries.
// usage: dispatcher_memory_bench [ENTRIES]. Prints one JSON line. Exit code 1: memory grew with the
// plan, or a line was handed out twice or not at all.
#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "actors/work_picker.h"
#include "tests/support/temporary_directory.h"

namespace batchmill {
namespace {

constexpr const char* kFingerprint = "00000000000000aa";
constexpr int kChunk = 10'000;
// A cursor's buffer, what is in flight, and the store's table indexes. An entry kept in memory
// would take at least 48 bytes: 48 MB for a million.
constexpr std::int64_t kAllowedGrowthBytes = 8 << 20;

std::int64_t heap_bytes() { return static_cast<std::int64_t>(::mallinfo2().uordblks); }

void fill_plan(JobStore& store, int entries) {
  const JobId id = store.open_job({}, 1'700'000'000'000).job.id;
  for (int first = 1; first <= entries; first += kChunk) {
    const int last = std::min(entries, first + kChunk - 1);
    std::vector<StoredLine> lines;
    JobStore::Prepared prepared;
    prepared.first_line = static_cast<std::uint64_t>(first);
    prepared.last_line = static_cast<std::uint64_t>(last);
    for (int i = first; i <= last; ++i) {
      lines.push_back({static_cast<std::uint64_t>(i), "{}", false});
      PlanEntry entry;
      entry.key = {id, static_cast<std::uint64_t>(i)};
      entry.model = "m";
      entry.fingerprint = kFingerprint;
      entry.prompts = {std::vector<TokenId>(20, i % 1000)};
      entry.prompts[0].push_back(i);
      entry.max_tokens = 4;
      prepared.entries.push_back(std::move(entry));
    }
    store.append_lines(id, lines, static_cast<std::uint64_t>(last) * 3, 0);
    store.commit_prepared(id, std::move(prepared), 1'700'000'000);
  }
  store.seal(id, "", 1'700'000'000);
}

void finish(JobStore& store, WorkPicker& picker, const std::vector<WorkItem>& items) {
  std::vector<LineResult> results;
  std::vector<PlanKey> plan_keys;
  std::vector<LineKey> keys;
  for (const WorkItem& item : items) {
    LineResult result;
    result.key = item.key;
    result.attempt = item.attempt;
    result.outcome = LineOutcome::kCompleted;
    result.output = "{}";
    results.push_back(std::move(result));
    plan_keys.push_back(item.plan_key);
    keys.push_back(item.key);
  }
  store.commit_results(results, plan_keys, 1'700'000'001);
  picker.done(keys);
}

int run(int entries) {
  const TemporaryDirectory directory;
  StorageOptions options;
  options.sync = false;
  // Small, so that the store's own memory cannot hide growth of the dispatcher's.
  options.block_cache_bytes = 1 << 20;
  options.write_buffer_bytes = 4 << 20;
  auto store = JobStore::open(directory.path("store"), options, JobStore::Mode::kReadWrite);
  fill_plan(*store, entries);
  store->flush();

  WorkPicker picker(store.get(), {kFingerprint});
  std::vector<bool> seen(static_cast<std::size_t>(entries) + 1, false);
  std::int64_t handed_out = 0;
  std::int64_t base_bytes = 0;
  std::int64_t most_bytes = 0;
  double picking_s = 0.0;
  double longest_pick_s = 0.0;
  bool right = true;
  while (true) {
    const auto start = std::chrono::steady_clock::now();
    const std::vector<WorkItem> items = picker.pick({0, 64, UINT64_MAX});
    const double took_s =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    picking_s += took_s;
    longest_pick_s = std::max(longest_pick_s, took_s);
    if (items.empty()) break;
    for (const WorkItem& item : items) {
      right = right && !seen[item.key.line];
      seen[item.key.line] = true;
    }
    handed_out += static_cast<std::int64_t>(items.size());
    finish(*store, picker, items);
    // RocksDB's own memory is bounded by its options and shows up here too: the first tenth of the
    // work fills it.
    if (handed_out < entries / 10) {
      base_bytes = std::max(base_bytes, heap_bytes());
    } else {
      most_bytes = std::max(most_bytes, heap_bytes());
    }
  }
  right = right && handed_out == entries && picker.num_in_flight() == 0;
  const std::int64_t rocksdb_bytes =
      static_cast<std::int64_t>(options.block_cache_bytes + options.write_buffer_bytes);
  const bool flat = most_bytes - base_bytes <= kAllowedGrowthBytes + rocksdb_bytes;
  fmt::print(
      "{{\"entries\": {}, \"heap_at_tenth_bytes\": {}, \"heap_most_bytes\": {}, \"flat\": {}, "
      "\"each_once\": {}, \"pick_us_per_line\": {:.1f}, \"longest_pick_ms\": {:.1f}}}\n",
      entries, base_bytes, most_bytes, flat, right, picking_s * 1e6 / std::max(entries, 1),
      longest_pick_s * 1e3);
  store.reset();
  return flat && right ? 0 : 1;
}

}  // namespace
}  // namespace batchmill

int main(int argc, char** argv) {
  return batchmill::run(argc > 1 ? std::atoi(argv[1]) : 1'000'000);
}
