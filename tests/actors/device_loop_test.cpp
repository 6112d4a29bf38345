#include "actors/device_loop.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <mutex>
#include <utility>

#include "actors/line_work.h"
#include "engine/engine.h"
#include "tests/support/letter_tokenizer.h"
#include "tests/support/scripted_runner.h"

namespace batchmill::testing {
namespace {

constexpr std::chrono::seconds kPatience{60};

WorkItem work_item(std::uint32_t attempt) {
  LineWork work;
  work.custom_id = "a";
  work.params.max_tokens = 2;
  work.params.ignore_eos = true;
  WorkItem item;
  item.key.line = 1;
  item.plan_key = "plan key of attempt " + std::to_string(attempt);
  item.attempt = attempt;
  item.prompts = {{1, 2, 3}};
  item.request = encode_line_work(work);
  return item;
}

// After its dispatcher has died a line may be handed out anew while it runs. The writer takes the
// answer to the latest attempt only.
TEST(DeviceLoopTest, AnswersTheLatestAttemptOfALineThatRunsAlready) {
  std::promise<void> begun, go_on;
  ScriptedRunnerOptions scripted;
  scripted.before_step = [&](std::int64_t step) {
    if (step != 0) return;
    begun.set_value();
    go_on.get_future().wait_for(kPatience);
  };
  ScriptedRunner runner(scripted);
  const LetterTokenizer tokenizer;
  EngineOptions options;
  options.max_context_tokens = 64;
  const Clock clock;
  LiveStats live;
  std::promise<LineCompletion> completed;
  DeviceLoop::Callbacks callbacks;
  callbacks.pull = [](const WorkRequest&) {};
  callbacks.completed = [&](LineCompletion line) { completed.set_value(std::move(line)); };
  callbacks.returned = [](const std::vector<LineKey>&) {};
  callbacks.failed = [](const std::string& reason) { ADD_FAILURE() << reason; };
  DeviceLoop loop(0, "scripted:0", options, std::make_unique<Engine>(options, &runner, &tokenizer),
                  std::make_shared<std::mutex>(), std::move(callbacks), &clock, &live);
  loop.push({work_item(2)});
  ASSERT_EQ(begun.get_future().wait_for(kPatience), std::future_status::ready);
  loop.push({work_item(3)});
  loop.push({work_item(1)});
  go_on.set_value();
  std::future<LineCompletion> answer = completed.get_future();
  ASSERT_EQ(answer.wait_for(kPatience), std::future_status::ready);
  const LineCompletion line = answer.get();
  EXPECT_EQ(line.item.attempt, 3u);
  EXPECT_EQ(line.item.plan_key, "plan key of attempt 3");
  EXPECT_EQ(line.error_code, "");
}

}  // namespace
}  // namespace batchmill::testing
