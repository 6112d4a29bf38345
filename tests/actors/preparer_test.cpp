#include "actors/preparer.h"

#include <gmock/gmock.h>

#include <future>
#include <thread>

#include "actors/line_preparer.h"
#include "tests/actors/actor_fixture.h"

namespace batchmill::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

// A preparer for which no model is configured: every line fails, after all that it says was read.
class PreparerTest : public ActorTest {
 protected:
  JobId job_of(const std::vector<std::string>& texts) {
    const JobId id = store_->open_job({}, 1'700'000'000'000).job.id;
    std::vector<StoredLine> lines;
    for (const std::string& text : texts) lines.push_back({lines.size() + 1, text});
    store_->append_lines(id, lines, 1'000, kQueuedUs);
    store_->seal(id, "", 1'700'000'000);
    return id;
  }
  static std::string line_with(const std::string& id, const std::string& fields) {
    return R"({"custom_id":")" + id + R"(","method":"POST","url":"/v1/completions","body":{)" +
           R"("prompt":"a")" + fields + "}}";
  }
  void start_preparer() {
    context_->catalog = &catalog_;
    start(system_->spawn(preparer, context_,
                         std::make_shared<const LinePreparer>(&catalog_, 16, 1, 1 << 20)));
  }
  Job wait_for_end(const JobId& id) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < deadline) {
      Job job = store_->job(id).value();
      if (job.ended()) return job;
      std::this_thread::yield();
    }
    ADD_FAILURE() << "the job does not end";
    return {};
  }

  static constexpr std::int64_t kQueuedUs = 1'700'000'123'000'000;
  ModelCatalog catalog_{{}};
};

TEST_F(PreparerTest, TellsWarningsThatAFullDiskHasRefused) {
  const JobId id = job_of({line_with("a", R"(,"colour":1)"), line_with("b", R"(,"taste":2)")});
  std::promise<void> refused;
  context_->options.on_storage_full = [&, told = false](const std::string&) mutable {
    if (!std::exchange(told, true)) refused.set_value();
  };
  disk_->is_full = true;
  start_preparer();
  refused.get_future().wait();
  disk_->is_full = false;
  EXPECT_THAT(wait_for_end(id).state.warnings, ElementsAre("unknown field ignored: body.colour",
                                                           "unknown field ignored: body.taste"));
}

TEST_F(PreparerTest, RemembersFewOfTheFieldsThatAJobMakesUp) {
  std::vector<std::string> lines;
  for (int i = 0; i < 40; ++i) {
    lines.push_back(line_with(std::to_string(i), ",\"field" + std::to_string(i) + "\":1"));
  }
  const JobId id = job_of(lines);
  start_preparer();
  EXPECT_THAT(wait_for_end(id).state.warnings, SizeIs(20));
}

TEST_F(PreparerTest, ALineIsQueuedWhenItIsDurable) {
  const JobId id = job_of({line_with("a", ""), line_with("a", ""), "no json"});
  start_preparer();
  wait_for_end(id);
  for (std::uint64_t line = 1; line <= 3; ++line) {
    const LineResult result = store_->result({id, line}).value();
    EXPECT_EQ(result.times.queued_us, kQueuedUs) << line;
    EXPECT_GT(result.times.finished_us, kQueuedUs);
  }
  EXPECT_EQ(store_->result({id, 2})->error_code, "duplicate_custom_id");
}

// A blank line has no result: the job would wait for one more than it counts, or end with one.
TEST_F(PreparerTest, BlankLinesAreThoseThatTheStoreDoesNotCount) {
  const JobId id = job_of({"", " \t\r\v\f", "\xEF\xBB\xBF", "\xEF\xBB\xBF\t", "\xC2\xA0", "x"});
  start_preparer();
  const Job job = wait_for_end(id);
  EXPECT_EQ(job.state.request_lines, 2u);
  EXPECT_EQ(job.counters.failed, 2u);
  for (std::uint64_t line = 1; line <= 6; ++line) {
    EXPECT_EQ(store_->result({id, line}).has_value(), line > 4) << line;
  }
}

}  // namespace
}  // namespace batchmill::testing
