// Rates of the store: storage_bench [LINES] [DIRECTORY]. One JSON line per measurement on stdout;
// what was written is read back and checked before a rate is printed.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <random>

#include "storage/job_store.h"

namespace batchmill {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kNowS = 1'700'000'000;
constexpr std::uint64_t kAppendLines = 1'000;  // per durable write
constexpr std::size_t kLineBytes = 300;
constexpr std::uint64_t kPrepareLines = 1'000;
constexpr std::size_t kResultGroup = 256;
constexpr std::size_t kPromptTokens = 64;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void report(const char* name, std::uint64_t count, double seconds, double bytes) {
  fmt::print("{{\"name\": \"{}\", \"count\": {}, \"seconds\": {:.3f}, \"per_second\": {:.0f}, ",
             name, count, seconds, static_cast<double>(count) / seconds);
  fmt::print("\"mb_per_second\": {:.1f}}}\n", bytes / seconds / 1e6);
  std::fflush(stdout);
}

void report_latencies(const char* name, std::vector<double> seconds) {
  if (seconds.empty()) return;
  std::ranges::sort(seconds);
  const auto at = [&](double share) {
    return seconds[static_cast<std::size_t>(share * static_cast<double>(seconds.size() - 1))] * 1e3;
  };
  fmt::print(
      "{{\"name\": \"{}\", \"count\": {}, \"p50_ms\": {:.3f}, \"p99_ms\": {:.3f}, \"max_ms\": "
      "{:.3f}}}\n",
      name, seconds.size(), at(0.5), at(0.99), at(1));
  std::fflush(stdout);
}

void require(bool holds, const char* what) {
  if (holds) return;
  fmt::print(stderr, "storage_bench: {} does not hold\n", what);
  std::exit(1);
}

// Families of 16 lines share all but the last 8 tokens.
PlanEntry make_entry(const JobId& job, std::uint64_t line, std::uint64_t num_lines) {
  std::mt19937 random(static_cast<std::uint32_t>(line % (num_lines / 16 + 1)));
  PlanEntry entry;
  entry.key = {job, line};
  entry.model = "smol";
  entry.fingerprint = "0123456789abcdef";
  std::vector<std::int32_t> ids(kPromptTokens);
  for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random() % 49'152);
  std::mt19937 tail(static_cast<std::uint32_t>(line));
  for (std::size_t i = kPromptTokens - 8; i < kPromptTokens; ++i) {
    ids[i] = static_cast<std::int32_t>(tail() % 49'152);
  }
  entry.prompts.push_back(std::move(ids));
  entry.max_tokens = 64;
  entry.request = std::string(64, 'r');
  return entry;
}

LineResult make_result(const PlanItem& item) {
  LineResult result;
  result.key = item.line;
  result.attempt = 1;
  result.outcome = LineOutcome::kCompleted;
  result.custom_id = "request-" + std::to_string(item.line.line);
  result.has_custom_id = true;
  result.output = std::string(600, 'o');
  result.model = "smol";
  result.device = "cpu:0";
  result.usage.prompt_tokens = kPromptTokens;
  result.usage.prompt_computed_tokens = kPromptTokens;
  result.usage.completion_tokens = 64;
  result.times = {kNowS * 1'000'000, kNowS * 1'000'000, kNowS * 1'000'000, kNowS * 1'000'000};
  result.price = {"v1", "USD", 150'000, 75'000, 600'000};
  return result;
}

void run(const std::string& directory, std::uint64_t num_lines) {
  const auto store = JobStore::open(directory, StorageOptions(), JobStore::Mode::kReadWrite);
  const JobId job = store->open_job({}, kNowS * 1'000).job.id;

  Clock::time_point start = Clock::now();
  for (std::uint64_t line = 1; line <= num_lines; line += kAppendLines) {
    std::vector<StoredLine> lines;
    for (std::uint64_t i = line; i < line + kAppendLines && i <= num_lines; ++i) {
      lines.push_back({i, std::string(kLineBytes, 'x')});
    }
    store->append_lines(job, lines, line * kLineBytes, kNowS * 1'000'000);
  }
  double seconds = seconds_since(start);
  require(store->job(job)->state.total_lines == num_lines, "every line is stored");
  report("append_lines, 1,000 lines a durable write", num_lines, seconds,
         static_cast<double>(num_lines * kLineBytes));
  store->seal(job, "hash", kNowS);

  start = Clock::now();
  for (std::uint64_t line = 1; line <= num_lines; line += kPrepareLines) {
    JobStore::Prepared prepared;
    prepared.first_line = line;
    prepared.last_line = std::min(num_lines, line + kPrepareLines - 1);
    for (std::uint64_t i = line; i <= prepared.last_line; ++i) {
      prepared.entries.push_back(make_entry(job, i, num_lines));
      prepared.custom_ids.emplace_back("request-" + std::to_string(i), i);
    }
    store->commit_prepared(job, std::move(prepared), kNowS);
  }
  report("commit_prepared, 1,000 lines a write", num_lines, seconds_since(start), 0);

  start = Clock::now();
  store->measure_prefixes(job);
  seconds = seconds_since(start);
  require(store->job(job)->state.prefix_trie_tokens != 0, "the prefixes are measured");
  report("measure_prefixes, prompts", num_lines, seconds, 0);

  // A sweep: refill behind what was answered, answer, and now and then start over at the front,
  // where everything is deleted.
  const std::vector<PlanLevel> levels = store->plan_levels();
  require(levels.size() == 1, "there is one level");
  PlanRange range{levels[0].first, levels[0].limit};
  const std::uint64_t num_answered = num_lines - num_lines / 100;
  std::uint64_t done = 0;
  double commit_seconds = 0;
  std::vector<double> refills;
  std::vector<double> wraps;
  while (done < num_answered) {
    start = Clock::now();
    const PlanPage page = store->read_plan(range, kResultGroup);
    refills.push_back(seconds_since(start));
    require(!page.items.empty(), "the plan holds the lines that have no result");
    std::vector<LineResult> results;
    std::vector<PlanKey> plan_keys;
    for (const PlanItem& item : page.items) {
      results.push_back(make_result(item));
      plan_keys.push_back(item.key);
    }
    start = Clock::now();
    const std::vector<bool> written = store->commit_results(results, plan_keys, kNowS);
    commit_seconds += seconds_since(start);
    require(std::ranges::count(written, true) == std::ssize(written), "every result is new");
    done += written.size();
    range.begin = page.next;
    if (refills.size() % 16 == 0) {
      start = Clock::now();
      store->read_plan({levels[0].first, levels[0].limit}, kResultGroup);
      wraps.push_back(seconds_since(start));
    }
  }
  require(store->job(job)->counters.completed == done, "the counters count");
  report("commit_results, 256 results a durable write", done, commit_seconds, 0);
  report_latencies("read_plan, 256 entries, at the cursor", std::move(refills));
  report_latencies("read_plan, 256 entries, from the front over all deletions", std::move(wraps));
  std::vector<double> late;
  for (int i = 0; i < 200; ++i) {
    start = Clock::now();
    store->read_plan({levels[0].first, levels[0].limit}, kResultGroup);
    late.push_back(seconds_since(start));
  }
  report_latencies("read_plan, from the front, after the last deletion", std::move(late));

  for (ResultOrder order : {ResultOrder::kInput, ResultOrder::kCompleted}) {
    start = Clock::now();
    std::uint64_t count = 0;
    double bytes = 0;
    JobStore::ResultPage page;
    while (!page.at_end) {
      page = store->read_results(job, order, page.next, 1'000, 4 << 20);
      count += page.results.size();
      for (const LineResult& result : page.results) {
        bytes += static_cast<double>(result.output.size());
      }
    }
    seconds = seconds_since(start);
    require(count == done, "every result is read once");
    report(order == ResultOrder::kInput ? "read_results, input order"
                                        : "read_results, completed order",
           count, seconds, bytes);
  }
  if (num_lines <= 10'000) require(store->check().problems.empty(), "the store is sound");
}

}  // namespace
}  // namespace batchmill

int main(int argc, char** argv) {
  const std::uint64_t num_lines = argc > 1 ? std::stoull(argv[1]) : 1'000'000;
  const std::string base = argc > 2 ? argv[2] : std::filesystem::temp_directory_path().string();
  const std::string directory = base + "/batchmill-storage-bench-" + std::to_string(getpid());
  std::filesystem::create_directories(directory);
  int code = 0;
  try {
    batchmill::run(directory, num_lines);
  } catch (const std::exception& error) {
    fmt::print(stderr, "storage_bench: {}\n", error.what());
    code = 1;
  }
  std::filesystem::remove_all(directory);
  return code;
}
