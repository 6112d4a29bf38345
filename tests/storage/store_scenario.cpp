#include "tests/storage/store_scenario.h"

#include <algorithm>

#include "tests/storage/store_fixture.h"

namespace batchmill::testing {
namespace {

constexpr std::uint64_t kMainLines = 1'200;  // more than a rebuild writes at once
constexpr std::uint64_t kChunkLines = 400;
constexpr std::int64_t kLaterS = kNowS + 100;

bool is_failure(std::uint64_t line) { return line % 10 == 0; }

}  // namespace

const std::vector<std::string>& StoreScenario::keys() {
  static const std::vector<std::string> keys = {"main", "strict", "cut", "cancelled"};
  return keys;
}

JobId StoreScenario::open_job(const std::string& key, bool strict) {
  JobRequest request;
  request.idempotency_key = key;
  request.strict = strict;
  const JobId id = store_->open_job(request, kNowMs).job.id;
  step();
  return id;
}

void StoreScenario::upload(const JobId& id, std::uint64_t num_lines) {
  for (std::uint64_t line = store_->job(id)->state.total_lines; line < num_lines;) {
    const std::uint64_t last = std::min(num_lines, line + kChunkLines);
    store_->append_lines(id, make_lines(line + 1, last), last * 100, kNowUs);
    line = last;
    step();
  }
}

void StoreScenario::prepare(const JobId& id) {
  while (true) {
    const JobState state = store_->job(id)->state;
    if (store_->job(id)->ended() || state.prepared_through == state.total_lines) return;
    JobStore::Prepared prepared;
    prepared.first_line = state.prepared_through + 1;
    prepared.last_line = std::min(state.total_lines, state.prepared_through + kChunkLines);
    for (std::uint64_t line = prepared.first_line; line <= prepared.last_line; ++line) {
      prepared.custom_ids.emplace_back("id-" + std::to_string(line), line);
      const auto number = static_cast<std::int32_t>(line);
      if (is_failure(line)) {
        prepared.failures.push_back(make_failure(id, line, "invalid_value"));
        prepared.failures.back().custom_id = prepared.custom_ids.back().first;
        prepared.failures.back().has_custom_id = true;
      } else {
        prepared.entries.push_back(make_entry(id, line, {number % 4, number}));
      }
    }
    store_->commit_prepared(id, std::move(prepared), kNowS);
    step();
  }
}

void StoreScenario::answer(const JobId& id, std::int64_t now_s) {
  std::vector<PlanItem> items;
  PlanRange range;
  for (PlanPage page; !page.at_end; range.begin = page.next) {
    page = store_->read_plan(range, kChunkLines);
    std::ranges::copy_if(page.items, std::back_inserter(items),
                         [&](const PlanItem& item) { return item.line.job == id; });
  }
  for (std::size_t at = 0; at < items.size(); at += kChunkLines) {
    std::vector<LineKey> lines;
    std::vector<LineResult> results;
    std::vector<PlanKey> plan_keys;
    for (std::size_t i = at; i < std::min<std::size_t>(items.size(), at + kChunkLines); ++i) {
      lines.push_back(items[i].line);
      results.push_back(make_result(id, items[i].line.line));
      plan_keys.push_back(items[i].key);
    }
    store_->begin_attempts(lines);
    step();
    store_->clear_attempts({lines.data(), 1});
    step();
    store_->clear_all_attempts();
    step();
    store_->commit_results(results, plan_keys, now_s);
    step();
  }
}

void StoreScenario::run(JobStore& store) {
  store_ = &store;
  // A job that is old when the others come, and goes.
  if (!store.job_of_key("main")) {
    const JobId old = open_job("old");
    upload(old, 3);
    store.seal(old, "hash", kNowS);
    prepare(old);
    answer(old, kNowS);
    store.end_finished_jobs(kNowS);
    step();
  }
  const JobId main = open_job("main");
  const std::atomic<bool> stop{false};
  store.prune(kLaterS, stop);
  step();
  upload(main, kMainLines);
  store.seal(main, "hash", kLaterS);
  step();
  prepare(main);
  if (!store.job(main)->ended()) {
    store.set_paused(main, true);
    step();
    store.set_paused(main, false);
    step();
    // A line that is prepared for another priority.
    PlanEntry entry = make_entry(main, 1, {1, 1});
    const PlanKey old_key = make_plan_key(entry);
    entry.priority = 3;
    store.replace_plan({&old_key, 1}, {&entry, 1});
    step();
  }

  const JobId empty = open_job("empty");
  store.append_lines(empty, std::vector<StoredLine>{{1, "  "}}, 3, kNowUs);
  step();
  EXPECT_FALSE(store.seal(empty, "hash", kLaterS));
  step();

  const JobId strict = open_job("strict", true);
  upload(strict, 5);
  store.seal(strict, "hash", kLaterS);
  step();
  const std::vector<std::pair<std::string, std::uint64_t>> ids{{"id-1", 1}, {"id-2", 2}};
  store.claim_ids(strict, ids);
  step();
  store.set_strict_checked(strict);
  step();
  prepare(strict);

  const JobId cut = open_job("cut");
  upload(cut, 7);
  store.truncate(cut, "truncated_input", "it broke off", kLaterS);
  step();
  prepare(cut);

  const JobId cancelled = open_job("cancelled");
  upload(cancelled, 9);
  prepare(cancelled);
  if (!store.job(cancelled)->ended()) {
    // One line is answered before the end, whichever time it is tried.
    if (!store.result({cancelled, 1})) {
      const LineResult result = make_result(cancelled, 1);
      const PlanKey key = make_plan_key(make_entry(cancelled, 1, {1, 1}));
      store.commit_results({&result, 1}, {&key, 1}, kLaterS);
      step();
    }
    store.end_job(cancelled, "batch_cancelled", kLaterS);
    step();
  }
  for (const JobId& id : {strict, cut, main}) answer(id, kLaterS);
  store.end_finished_jobs(kLaterS);
  step();
  while (store.drain_plan(4)) step();
  store.rebuild();
  step();
}

std::string StoreScenario::summary(const JobStore& store) {
  std::string text;
  const auto add = [&](auto number) { text += " " + std::to_string(number); };
  for (const std::string& key : keys()) {
    const std::optional<Job> job = store.job_of_key(key);
    text += key;
    if (!job) {
      text += " is not there\n";
      continue;
    }
    text += " " + std::string(job->status()) + " " + job->state.end_code;
    add(job->state.total_lines);
    add(job->counters.completed);
    add(job->counters.failed);
    add(job->counters.usage.prompt_tokens);
    add(job->counters.usage.completion_tokens);
    add(job->state.prefix_prompt_tokens);
    add(job->state.prefix_trie_tokens);
    LedgerRow sum;
    store.read_ledger(job->id, LedgerBy::kJob, [&](const LedgerRow& row) { sum.add(row); });
    text += " " + format_picos(sum.cost_total());
    add(sum.completed);
    add(sum.failed);
    std::uint64_t owner_sum = 0;
    for (std::uint64_t line = 1; line <= job->state.total_lines; ++line) {
      if (store.result({job->id, line})->ended_with_job) continue;
      owner_sum += store.find_line(job->id, "id-" + std::to_string(line));
    }
    add(owner_sum);
    text += "\n";
  }
  const JobStore::CheckReport report = store.check();
  for (const std::string& problem : report.problems) text += problem + "\n";
  add(report.jobs);
  add(report.lines);
  add(report.results);
  add(report.plan_entries);
  return text;
}

}  // namespace batchmill::testing
