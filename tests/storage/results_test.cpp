#include <gtest/gtest.h>

#include <thread>

#include "tests/storage/store_fixture.h"

namespace batchmill {
namespace {

class ResultsTest : public StoreTest {};

std::vector<std::uint64_t> lines_of(const std::vector<LineResult>& results) {
  std::vector<std::uint64_t> lines;
  for (const LineResult& result : results) lines.push_back(result.key.line);
  return lines;
}

TEST_F(ResultsTest, AGroupIsWrittenWithEverythingItMoves) {
  const JobId id = prepared_job(5);
  std::vector<LineResult> group{make_result(id, 4), make_result(id, 2)};
  group[0].times.queued_us = 0;
  const std::vector<PlanKey> plan_keys{plan_key_of(id, 2), plan_key_of(id, 4)};
  EXPECT_EQ(store_->commit_results(group, plan_keys, kNowS), (std::vector<bool>{true, true}));
  open();
  EXPECT_EQ(store_->job(id)->counters.completed, 2u);
  EXPECT_EQ(store_->job(id)->counters.usage.completion_tokens, 42u);
  EXPECT_EQ(whole_plan().size(), 3u);
  EXPECT_EQ(store_->result({id, 2}), group[1]);
  EXPECT_EQ(store_->result({id, 4})->times.queued_us, store_->line({id, 4})->queued_us);
  EXPECT_FALSE(store_->result({id, 3}));
  EXPECT_EQ(lines_of(read_all(id, ResultOrder::kInput)), (std::vector<std::uint64_t>{2, 4}));
  EXPECT_EQ(lines_of(read_all(id, ResultOrder::kCompleted)), (std::vector<std::uint64_t>{4, 2}));
  expect_sound();
}

TEST_F(ResultsTest, ALineIsAnsweredOnce) {
  const JobId id = prepared_job(3);
  ASSERT_TRUE(finish(id, 1));
  LineResult late = make_result(id, 1);
  late.output = "{\"late\": true}";
  const std::vector<LineResult> group{late, make_result(id, 2), make_result(id, 2)};
  EXPECT_EQ(store_->commit_results(group, {}, kNowS), (std::vector<bool>{false, true, false}));
  EXPECT_EQ(store_->result({id, 1})->output, "{\"answer\": 1}");
  EXPECT_EQ(store_->job(id)->counters.completed, 2u);
}

TEST_F(ResultsTest, RefusesLinesAndKeysThatDoNotBelong) {
  const JobId id = prepared_job(2);
  LineResult result = make_result(id, 3);
  EXPECT_THROW(store_->commit_results({&result, 1}, {}, kNowS), std::invalid_argument);
  result = make_result(id, 1);
  const PlanKey other = plan_key_of(id, 2);
  EXPECT_THROW(store_->commit_results({&result, 1}, {&other, 1}, kNowS), std::invalid_argument);
  EXPECT_FALSE(store_->result({id, 1}));
  expect_sound();
}

TEST_F(ResultsTest, ACancelledJobAnswersEveryLineAtOnceAndIgnoresLateResults) {
  const JobId id = new_job();
  std::vector<StoredLine> lines = make_lines(1, 8);
  lines[4].bytes.clear();  // line 5 is blank
  store_->append_lines(id, lines, 800, kNowUs);
  JobStore::Prepared prepared;
  prepared.first_line = 1;
  prepared.last_line = 6;
  for (std::uint64_t line : {1, 2, 3, 4, 6}) {
    const auto number = static_cast<std::int32_t>(line);
    prepared.entries.push_back(make_entry(id, line, {number % 4, number}));
  }
  ASSERT_TRUE(store_->commit_prepared(id, prepared, kNowS));
  ASSERT_TRUE(finish(id, 6));
  ASSERT_TRUE(finish(id, 3));
  ASSERT_TRUE(store_->end_job(id, "batch_cancelled", kNowS));
  EXPECT_FALSE(store_->end_job(id, "batch_expired", kNowS));
  EXPECT_FALSE(finish(id, 1));
  store_->append_lines(id, make_lines(9, 9), 900, kNowUs);
  for (int round = 0; round < 2; ++round) {
    const Job job = *store_->job(id);
    EXPECT_EQ(job.status(), "cancelled");
    EXPECT_EQ(job.state.total_lines, 8u);
    EXPECT_EQ(job.counters.completed, 2u);
    EXPECT_EQ(job.counters.failed, 5u);
    const std::vector<LineResult> by_line = read_all(id, ResultOrder::kInput);
    EXPECT_EQ(lines_of(by_line), (std::vector<std::uint64_t>{1, 2, 3, 4, 6, 7, 8}));
    EXPECT_EQ(lines_of(read_all(id, ResultOrder::kCompleted)),
              (std::vector<std::uint64_t>{6, 3, 1, 2, 4, 7, 8}));
    EXPECT_TRUE(by_line[0].ended_with_job);
    EXPECT_EQ(by_line[0].error_code, "batch_cancelled");
    EXPECT_EQ(by_line[0].input, "{\"line\": 1}");
    EXPECT_EQ(by_line[0].output, "");
    EXPECT_FALSE(by_line[2].ended_with_job);
    EXPECT_EQ(store_->result({id, 7})->error_code, "batch_cancelled");
    EXPECT_FALSE(store_->result({id, 5}));
    while (store_->drain_plan(2)) {
    }
    expect_sound();
    open();
  }
}

TEST_F(ResultsTest, AJobEndsWhenItsLastLineIsAnswered) {
  const JobId id = prepared_job(3);
  for (std::uint64_t line = 1; line <= 3; ++line) {
    EXPECT_TRUE(store_->end_finished_jobs(kNowS).empty());
    ASSERT_TRUE(finish(id, line));
  }
  open();
  EXPECT_EQ(store_->end_finished_jobs(kNowS + 9), std::vector<JobId>{id});
  EXPECT_TRUE(store_->end_finished_jobs(kNowS + 9).empty());
  EXPECT_EQ(store_->job(id)->status(), "completed");
  EXPECT_EQ(store_->job(id)->state.completed_at_s, kNowS + 9);
  EXPECT_FALSE(store_->end_job(id, "batch_cancelled", kNowS));
  EXPECT_TRUE(store_->unfinished_jobs().empty());
  expect_sound();
}

TEST_F(ResultsTest, APausedJobStaysPaused) {
  const JobId id = prepared_job(1);
  store_->set_paused(id, true);
  open();
  EXPECT_TRUE(store_->job(id)->state.paused);
  store_->set_paused(id, false);
  EXPECT_FALSE(store_->job(id)->state.paused);
}

TEST_F(ResultsTest, PagesEndAtTheByteLimit) {
  const JobId id = prepared_job(4);
  for (std::uint64_t line = 1; line <= 4; ++line) ASSERT_TRUE(finish(id, line));
  const std::size_t one = std::string("{\"answer\": 1}").size();
  JobStore::ResultPage page = store_->read_results(id, ResultOrder::kInput, 0, 10, 2 * one);
  EXPECT_EQ(page.results.size(), 2u);
  EXPECT_FALSE(page.at_end);
  page = store_->read_results(id, ResultOrder::kInput, page.next, 10, 1);
  EXPECT_EQ(lines_of(page.results), std::vector<std::uint64_t>{3});
  page = store_->read_results(id, ResultOrder::kCompleted, 0, 10, 1);
  EXPECT_EQ(page.results.size(), 1u);
}

TEST_F(ResultsTest, ManyWritersAndReadersSeeWholeGroups) {
  constexpr std::uint64_t kLines = 400;
  const JobId first = prepared_job(kLines);
  const JobId second = prepared_job(kLines);
  const JobId uploaded = new_job();
  std::atomic<bool> is_done{false};
  std::atomic<int> num_broken{0};
  {
    std::vector<std::jthread> threads;
    std::jthread reader([&] {
      // Groups of four: a reader never sees a part of one.
      while (!is_done) {
        for (const JobId& id : {first, second}) {
          const Job job = *store_->job(id);
          if (job.counters.completed % 4 != 0) ++num_broken;
          const auto page = store_->read_results(id, ResultOrder::kCompleted, 0, kLines, 1 << 20);
          if (page.results.size() % 4 != 0 || page.results.size() < job.counters.completed) {
            ++num_broken;
          }
        }
      }
    });
    for (const JobId& id : {first, second}) {
      threads.emplace_back([&, id] {
        for (std::uint64_t line = 1; line <= kLines; line += 4) {
          std::vector<LineResult> group;
          std::vector<PlanKey> plan_keys;
          for (std::uint64_t i = line; i < line + 4; ++i) {
            group.push_back(make_result(id, i));
            plan_keys.push_back(plan_key_of(id, i));
          }
          store_->commit_results(group, plan_keys, kNowS);
        }
      });
    }
    threads.emplace_back([&] {
      for (std::uint64_t line = 1; line <= kLines; line += 10) {
        store_->append_lines(uploaded, make_lines(line, line + 9), line * 100, kNowUs);
      }
    });
    threads.clear();
    is_done = true;
  }
  EXPECT_EQ(num_broken, 0);
  EXPECT_EQ(store_->job(first)->counters.completed, kLines);
  EXPECT_EQ(store_->job(uploaded)->state.total_lines, kLines);
  expect_sound();
}

TEST_F(ResultsTest, LinesEndNoEarlierThanThoseBeforeThemWhenTheClockIsSetBack) {
  const JobId id = prepared_job(2);
  LineResult first = make_result(id, 1), second = make_result(id, 2);
  first.times.finished_us = kNowUs + 86'400'000'000;
  ASSERT_TRUE(store_->commit_results({&first, 1}, {}, kNowS + 86'400).front());
  ASSERT_TRUE(store_->commit_results({&second, 1}, {}, kNowS).front());
  EXPECT_GE(store_->result({id, 2})->times.finished_us, first.times.finished_us);
  int num_rows = 0;
  store_->read_ledger(id, LedgerBy::kDay, [&](const LedgerRow&) { ++num_rows; });
  EXPECT_EQ(num_rows, 1);
}

}  // namespace
}  // namespace batchmill
