#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <random>

#include "tests/storage/store_fixture.h"
#include "tests/support/sanitized_build.h"

namespace batchmill {
namespace {

constexpr std::uint64_t kLines = 300;

// What the child was told is durable, readable after its death.
struct Acked {
  std::atomic<std::uint64_t> lines;
  std::atomic<std::uint64_t> results;
  std::atomic<std::uint64_t> attempts;
};

// Takes the one job on from wherever it is; dies by SIGKILL after `num_steps` writes, or returns.
void work(const std::string& directory, int num_steps, std::uint64_t seed, Acked& acked) {
  std::mt19937_64 random(seed);
  const auto store = JobStore::open(directory, small_options(), JobStore::Mode::kReadWrite);
  const auto step = [&] {
    if (--num_steps <= 0) kill(getpid(), SIGKILL);
  };
  JobRequest request;
  request.idempotency_key = "the job";
  const JobId id = store->open_job(request, kNowMs).job.id;
  step();
  while (true) {
    const Job job = *store->job(id);
    if (job.ended()) return;
    const JobState& state = job.state;
    const std::uint64_t choice = random() % 4;
    if (choice == 0 && state.total_lines < kLines) {
      const std::uint64_t last = std::min(kLines, state.total_lines + 1 + random() % 20);
      store->append_lines(id, make_lines(state.total_lines + 1, last), last * 100, kNowUs);
      acked.lines = last;
    } else if (choice == 1 && state.total_lines == kLines && state.upload == UploadState::kOpen) {
      store->seal(id, "hash", kNowS);
    } else if (choice == 2 && state.prepared_through < state.total_lines) {
      JobStore::Prepared prepared;
      prepared.first_line = state.prepared_through + 1;
      prepared.last_line = std::min(state.total_lines, prepared.first_line + random() % 20);
      for (std::uint64_t line = prepared.first_line; line <= prepared.last_line; ++line) {
        prepared.custom_ids.emplace_back("id-" + std::to_string(line), line);
        if (line % 10 == 0) {
          prepared.failures.push_back(make_failure(id, line, "invalid_value"));
          continue;
        }
        const auto number = static_cast<std::int32_t>(line);
        prepared.entries.push_back(make_entry(id, line, {number % 4, number}));
      }
      store->commit_prepared(id, std::move(prepared), kNowS);
    } else if (choice == 3) {
      const PlanPage page = store->read_plan({}, 1 + random() % 16);
      std::vector<LineKey> lines;
      std::vector<LineResult> group;
      std::vector<PlanKey> plan_keys;
      for (const PlanItem& item : page.items) {
        lines.push_back(item.line);
        group.push_back(make_result(id, item.line.line));
        plan_keys.push_back(item.key);
      }
      if (!lines.empty()) {
        const auto counts = store->begin_attempts(lines);
        for (std::size_t i = 0; i < group.size(); ++i) group[i].attempt = counts[i];
        acked.attempts += lines.size();
        step();
        for (bool was_written : store->commit_results(group, plan_keys, kNowS)) {
          if (was_written) ++acked.results;
        }
      }
      store->end_finished_jobs(kNowS);
    }
    step();
  }
}

TEST(RecoveryTest, AKilledWriterLosesAndRepeatsNothing) {
  if (kThreadSanitizedBuild) GTEST_SKIP() << "skipped: forks a process that has had threads";
  const TemporaryDirectory directory;
  void* memory =
      mmap(nullptr, sizeof(Acked), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* acked = new (memory) Acked{};
  std::mt19937_64 random(41);
  int num_kills = 0;
  JobId id;
  while (true) {
    ASSERT_LT(num_kills, 500);
    const int num_steps = 1 + static_cast<int>(random() % 12);
    const std::uint64_t seed = random();
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      work(directory.path(), num_steps, seed, *acked);
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    const bool was_killed = WIFSIGNALED(status);
    if (was_killed) {
      ASSERT_EQ(WTERMSIG(status), SIGKILL);
      ++num_kills;
    } else {
      ASSERT_EQ(status, 0);
    }
    const auto store = JobStore::open(directory.path(), small_options(), JobStore::Mode::kReadOnly);
    const JobStore::CheckReport report = store->check();
    ASSERT_EQ(report.problems, std::vector<std::string>());
    ASSERT_EQ(report.jobs, 1u);
    ASSERT_GE(report.lines, acked->lines);
    ASSERT_GE(report.results, acked->results);
    id = store->list(std::nullopt, 1, "").front().id;
    if (!was_killed) break;
  }
  EXPECT_GE(num_kills, 12);
  const auto store = JobStore::open(directory.path(), small_options(), JobStore::Mode::kReadOnly);
  const Job job = *store->job(id);
  EXPECT_EQ(job.status(), "completed");
  EXPECT_EQ(job.counters.completed, kLines - kLines / 10);
  EXPECT_EQ(job.counters.failed, kLines / 10);
  LedgerRow sum;
  store->read_ledger(id, LedgerBy::kJob, [&](const LedgerRow& row) { sum.add(row); });
  Picos expected = 0;
  for (std::uint64_t line = 1; line <= kLines; ++line) {
    if (line % 10 == 0) continue;
    const LineUsage usage = make_result(id, line).usage;
    expected += cost_of(usage.prompt_computed_tokens, 150'000) +
                cost_of(usage.prompt_cached_tokens, 75'000) +
                cost_of(usage.completion_tokens, 600'000);
  }
  EXPECT_EQ(format_picos(sum.cost_total()), format_picos(expected));
  munmap(memory, sizeof(Acked));
}

}  // namespace
}  // namespace batchmill
