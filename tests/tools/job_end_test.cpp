#include "tools/job_end.h"

#include <gtest/gtest.h>

namespace batchmill {
namespace {

Json batch(const std::string& status, int total, int completed, int failed) {
  return {{"id", "batch_X"},
          {"status", status},
          {"errors", nullptr},
          {"request_counts", {{"total", total}, {"completed", completed}, {"failed", failed}}},
          {"usage",
           {{"input_tokens", 5},
            {"input_tokens_details", {{"cached_tokens", 2}}},
            {"output_tokens", 3}}},
          {"batchmill",
           {{"cost", "0.5"}, {"currency", "USD"}, {"warnings", Json::array({"ignored x"})}}}};
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

TEST(JobEndTest, OnlyACompletedJobWithoutFailedLinesIsZero) {
  EXPECT_EQ(job_exit_code(batch("completed", 2, 2, 0)), 0);
  EXPECT_EQ(job_exit_code(batch("completed", 2, 1, 1)), 1);
  EXPECT_EQ(job_exit_code(batch("completed", 2, 0, 2)), 1);
  EXPECT_EQ(job_exit_code(batch("cancelled", 2, 2, 0)), 1);
  EXPECT_EQ(job_exit_code(batch("failed", 2, 0, 0)), 1);
}

TEST(JobEndTest, EndedJobsAreTheFourLastStates) {
  for (const char* status : {"completed", "failed", "expired", "cancelled"}) {
    EXPECT_TRUE(has_ended(batch(status, 1, 1, 0))) << status;
  }
  for (const char* status : {"validating", "in_progress", "finalizing", "cancelling"}) {
    EXPECT_FALSE(has_ended(batch(status, 1, 1, 0))) << status;
  }
}

TEST(JobEndTest, SaysInTheFirstLineThatEveryLineFailed) {
  EXPECT_EQ(first_line(job_summary(batch("completed", 3, 0, 3))),
            "batch_X completed, but all 3 lines failed");
}

TEST(JobEndTest, CountsDoneAndFailedApart) {
  EXPECT_EQ(lines_text(batch("in_progress", 149, 96, 9)), "96 done, 9 failed of 149 lines");
  EXPECT_EQ(first_line(job_summary(batch("completed", 149, 140, 9))),
            "batch_X completed: 140 done, 9 failed of 149 lines");
  EXPECT_EQ(first_line(job_summary(batch("cancelled", 149, 96, 9))),
            "batch_X cancelled (96 done, 9 failed of 149 lines)");
}

TEST(JobEndTest, NamesTheFirstError) {
  Json strict = batch("failed", 3, 0, 0);
  strict["errors"] = {{"object", "list"},
                      {"data", {{{"code", "missing_field"}, {"message", "no body"}, {"line", 2}}}}};
  EXPECT_EQ(first_line(job_summary(strict)),
            "batch_X failed: line 2: missing_field: no body (0 done of 3 lines)");
}

TEST(JobEndTest, TellsCostAndWarnings) {
  EXPECT_EQ(job_summary(batch("completed", 2, 2, 0)),
            "batch_X completed: 2 done of 2 lines\n"
            "5 prompt tokens (2 from the prefix cache), 3 generated, cost 0.5 USD\n"
            "warning: ignored x\n");
}

TEST(JobEndTest, WithoutPricesThereIsNoCost) {
  Json free = batch("completed", 2, 2, 0);
  free["batchmill"]["cost"] = "0";
  EXPECT_EQ(job_summary(free),
            "batch_X completed: 2 done of 2 lines\n"
            "5 prompt tokens (2 from the prefix cache), 3 generated, no prices were configured\n"
            "warning: ignored x\n");
}

}  // namespace
}  // namespace batchmill
