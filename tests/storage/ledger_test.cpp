#include "storage/ledger.h"

#include <gtest/gtest.h>

#include <random>

#include "storage/store.h"
#include "tests/storage/store_fixture.h"

namespace batchmill {
namespace {

class LedgerTest : public StoreTest {
 protected:
  std::vector<LedgerRow> rows(const std::optional<JobId>& id, LedgerBy by) {
    std::vector<LedgerRow> out;
    store_->read_ledger(id, by, [&](const LedgerRow& row) { out.push_back(row); });
    return out;
  }
  static LedgerRow sum_of(const std::vector<LedgerRow>& rows) {
    LedgerRow sum;
    for (const LedgerRow& row : rows) sum.add(row);
    return sum;
  }
};

TEST_F(LedgerTest, BillsExactly) {
  const JobId id = prepared_job(1);
  ASSERT_TRUE(finish(id, 1));
  const std::vector<LedgerRow> all = rows(id, LedgerBy::kJob);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].model, "smol");
  EXPECT_EQ(all[0].currency, "USD");
  EXPECT_EQ(all[0].price_version, "2024-01");
  // 41 computed at 0.15, 60 cached at 0.075, 7 out at 0.60 per million.
  EXPECT_EQ(format_picos(all[0].cost_prompt), "0.00000615");
  EXPECT_EQ(format_picos(all[0].cost_prompt_cached), "0.0000045");
  EXPECT_EQ(format_picos(all[0].cost_completion), "0.0000042");
  EXPECT_EQ(format_picos(all[0].cost_total()), "0.00001485");
}

TEST_F(LedgerTest, AJobIsTheSumOfItsLinesDaysAndModels) {
  std::mt19937_64 random(31);
  std::vector<JobId> jobs;
  for (int j = 0; j < 3; ++j) {
    constexpr std::uint64_t kLines = 40;
    const JobId id = prepared_job(kLines);
    jobs.push_back(id);
    for (std::uint64_t line = 1; line <= kLines; ++line) {
      if (j == 2 && line > 30) break;
      LineResult result = make_result(id, line);
      if (random() % 4 == 0) {
        result = make_failure(id, line, "internal_error");
        if (random() % 2 == 0) result.model = "smol";
      } else {
        result.model = random() % 2 == 0 ? "smol" : "large";
        result.price.version = random() % 2 == 0 ? "v1" : "v2";
        result.price.input = static_cast<std::int64_t>(random() % 1'000'000);
        result.usage.prompt_computed_tokens = random() % 100'000;
        result.usage.prompt_tokens =
            result.usage.prompt_cached_tokens + result.usage.prompt_computed_tokens;
        result.usage.recomputed_tokens = random() % 50;
      }
      result.times.finished_us = kNowUs + static_cast<std::int64_t>(random() % 3) * 86'400'000'000;
      const PlanKey key = plan_key_of(id, line);
      ASSERT_TRUE(store_->commit_results({&result, 1}, {&key, 1}, kNowS).front());
    }
  }
  ASSERT_TRUE(store_->end_job(jobs[2], "batch_expired", kNowS));
  LedgerRow total;
  for (const JobId& id : jobs) {
    const LedgerRow sum = sum_of(rows(id, LedgerBy::kLine));
    EXPECT_EQ(rows(id, LedgerBy::kLine).size(), 40u);
    EXPECT_EQ(sum_of(rows(id, LedgerBy::kJob)), sum);
    EXPECT_EQ(sum_of(rows(id, LedgerBy::kModel)), sum);
    EXPECT_EQ(sum_of(rows(id, LedgerBy::kDay)), sum);
    const Job job = *store_->job(id);
    EXPECT_EQ(job.counters.usage, sum.usage);
    EXPECT_EQ(job.counters.completed, sum.completed);
    EXPECT_EQ(job.counters.failed, sum.failed);
    EXPECT_EQ(sum.completed + sum.failed, 40u);
    total.add(sum);
  }
  for (LedgerBy by : {LedgerBy::kJob, LedgerBy::kLine, LedgerBy::kModel, LedgerBy::kDay}) {
    EXPECT_EQ(sum_of(rows(std::nullopt, by)), total);
  }
  for (const LedgerRow& row : rows(jobs[0], LedgerBy::kJob)) {
    if (!row.model.empty()) {
      EXPECT_EQ(row.currency, "USD");
    }
    if (row.model == "large") {
      EXPECT_EQ(row.price_version, "v1,v2");
    }
  }
  std::vector<std::string> days;
  for (const LedgerRow& row : rows(std::nullopt, LedgerBy::kDay)) days.push_back(row.day);
  EXPECT_EQ(days, (std::vector<std::string>{"2023-11-14", "2023-11-15", "2023-11-16"}));
}

TEST_F(LedgerTest, CurrenciesAreNeverAdded) {
  const JobId id = prepared_job(2);
  std::vector<LineResult> group{make_result(id, 1), make_result(id, 2)};
  group[1].price.currency = "EUR";
  const std::vector<PlanKey> plan_keys{plan_key_of(id, 1), plan_key_of(id, 2)};
  store_->commit_results(group, plan_keys, kNowS);
  const std::vector<LedgerRow> all = rows(id, LedgerBy::kJob);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].currency, "EUR");
  EXPECT_EQ(all[1].currency, "USD");
}

TEST_F(LedgerTest, LinesThatEndedWithTheJobCarryTheirInput) {
  const JobId id = prepared_job(2);
  ASSERT_TRUE(finish(id, 1));
  ASSERT_TRUE(store_->end_job(id, "batch_cancelled", kNowS));
  const std::vector<LedgerRow> lines = rows(id, LedgerBy::kLine);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].custom_id, "id-1");
  EXPECT_EQ(lines[1].failed, 1u);
  EXPECT_EQ(lines[1].input, "{\"line\": 2}");
}

TEST(DayTest, CountsInUtc) {
  EXPECT_EQ(day_text(day_of(0)), "1970-01-01");
  EXPECT_EQ(day_text(day_of(951'782'399)), "2000-02-28");
  EXPECT_EQ(day_text(day_of(951'782'400)), "2000-02-29");
  EXPECT_EQ(day_of(-5), 0u);
}

}  // namespace
}  // namespace batchmill
