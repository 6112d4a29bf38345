// Each actor is made to die in the middle of a job; the job ends as if nothing had happened.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/sink.h>
#include <spdlog/spdlog.h>

#include <future>
#include <set>

#include "actors/context.h"
#include "tests/actors/test_daemon.h"

namespace batchmill::testing {
namespace {

enum class Victim { kIntake, kControl, kPreparer, kDispatcher, kWriter, kDeviceWorker };

const char* name_of(Victim victim) {
  switch (victim) {
    case Victim::kIntake:
      return "Intake";
    case Victim::kControl:
      return "Control";
    case Victim::kPreparer:
      return "Preparer";
    case Victim::kDispatcher:
      return "Dispatcher";
    case Victim::kWriter:
      return "Writer";
    case Victim::kDeviceWorker:
      return "DeviceWorker";
  }
  return "?";
}

void kill(const Directory& directory, Victim victim) {
  const auto end = [](const auto& handle) {
    ASSERT_TRUE(handle);
    caf::anon_send_exit(handle, caf::exit_reason::kill);
  };
  switch (victim) {
    case Victim::kIntake:
      return end(directory.get<IntakeActor>());
    case Victim::kControl:
      return end(directory.get<ControlActor>());
    case Victim::kPreparer:
      return end(directory.get<PreparerActor>());
    case Victim::kDispatcher:
      return end(directory.get<DispatcherActor>());
    case Victim::kWriter:
      return end(directory.get<WriterActor>());
    case Victim::kDeviceWorker:
      return end(directory.devices().at(0));
  }
}

class ActorDeathTest : public ::testing::TestWithParam<Victim> {};

TEST_P(ActorDeathTest, LeavesTheJobRight) {
  TestDaemon::Options options;
  options.engine.max_num_seqs = 8;
  TestDaemon daemon(options);
  daemon.start();
  std::string content;
  for (int i = 0; i < 1500; ++i) {
    content += chat_line(fmt::format("line-{}", i), fmt::format("shared text, question {}", i), 6);
  }
  const std::string job = daemon.submit(content);
  // Twice, at different points of the job.
  for (const int finished : {20, 300}) {
    daemon.wait_until(job, [&](const Json& now) {
      return now["request_counts"]["completed"].get<int>() >= finished;
    });
    kill(daemon.daemon().directory(), GetParam());
  }
  const Json batch = daemon.wait(job);
  EXPECT_EQ(batch["status"], "completed");
  EXPECT_EQ(batch["request_counts"]["completed"], 1500);
  std::set<std::string> ids;
  std::uint64_t prompt_tokens = 0;
  for (const Json& line : daemon.results(job)) {
    EXPECT_TRUE(ids.insert(line["custom_id"].get<std::string>()).second);
    if (GetParam() == Victim::kDispatcher) {
      // Its death is no sign of poison in the lines that were in flight.
      const Json life = daemon.request(
          {{"what", "explain"}, {"job", job}, {"custom_id", line["custom_id"]}})["line"];
      EXPECT_EQ(life["attempts"], 1) << line["custom_id"];
    }
    prompt_tokens += line["response"]["body"]["usage"]["prompt_tokens"].get<std::uint64_t>();
  }
  EXPECT_EQ(ids.size(), 1500u);
  EXPECT_EQ(daemon.costs(job, "job").at(0)["tokens"]["prompt"], prompt_tokens);
  // Uploads and requests work as before.
  EXPECT_EQ(daemon.wait(daemon.submit(chat_line("again", "x")))["status"], "completed");
  daemon.stop();
}

INSTANTIATE_TEST_SUITE_P(EachActor, ActorDeathTest,
                         ::testing::Values(Victim::kIntake, Victim::kControl, Victim::kPreparer,
                                           Victim::kDispatcher, Victim::kWriter,
                                           Victim::kDeviceWorker),
                         [](const auto& test) { return name_of(test.param); });

// Holds up whoever logs a text that contains `part`, once.
class HoldingSink : public spdlog::sinks::sink {
 public:
  explicit HoldingSink(std::string part) : part_(std::move(part)) {}
  void log(const spdlog::details::log_msg& message) override {
    const std::string_view text(message.payload.data(), message.payload.size());
    if (text.find(part_) == std::string_view::npos || holds_.exchange(true)) return;
    go_on_.get_future().wait_for(std::chrono::seconds(60));
  }
  void flush() override {}
  void set_pattern(const std::string&) override {}
  void set_formatter(std::unique_ptr<spdlog::formatter>) override {}

  bool holds() const { return holds_; }
  void let_go() { go_on_.set_value(); }

 private:
  const std::string part_;
  std::atomic<bool> holds_{false};
  std::promise<void> go_on_;
};

// The dispatcher is in the middle of a message when the writer dies: as long as it is, it may hand
// out lines, and a second one would hand out the same.
TEST(ActorDeathTest, StartsNoSecondDispatcherBesideOneThatIsBusy) {
  std::promise<void> started;
  TestDaemon::Options options;
  options.before_step = [&](std::int64_t step) {
    if (step == 0) started.get_future().wait_for(std::chrono::seconds(60));
  };
  TestDaemon daemon(options);
  daemon.start();
  std::string content;
  for (int i = 0; i < 200; ++i) content += chat_line(fmt::format("line-{}", i), "text", 4);
  const std::string job = daemon.submit(content);
  daemon.wait_until(job, [](const Json& batch) { return batch["status"] == "in_progress"; });
  started.set_value();
  daemon.request({{"what", "pause"}, {"job", job}});
  daemon.stop(std::chrono::milliseconds(0));
  options.before_step = nullptr;
  daemon.options() = options;
  {
    // A line that counts as tried thrice makes the dispatcher log.
    const auto store =
        JobStore::open(daemon.data_directory() + "/data/store", {}, JobStore::Mode::kReadWrite);
    const PlanPage page = store->read_plan({}, 1, {});
    ASSERT_EQ(page.items.size(), 1u);
    for (int i = 0; i < 3; ++i) store->begin_attempts(std::span(&page.items.front().line, 1));
    ASSERT_EQ(store->attempts(std::span(&page.items.front().line, 1)).front(), 3u);
  }
  const auto sink = std::make_shared<HoldingSink>("has ended the process 3 times");
  spdlog::default_logger()->sinks().push_back(sink);
  daemon.start();
  daemon.request({{"what", "resume"}, {"job", job}});
  daemon.wait_for([&] { return sink->holds(); });
  const Directory& directory = daemon.daemon().directory();
  kill(directory, Victim::kWriter);
  daemon.wait_for([&] { return directory.get<WriterActor>() == nullptr; });
  // The supervisor has dealt with the writer's death when it has dealt with a later one.
  const caf::actor_addr control = directory.get<ControlActor>().address();
  kill(directory, Victim::kControl);
  daemon.wait_for([&] { return directory.get<ControlActor>().address() != control; });
  EXPECT_TRUE(directory.get<DispatcherActor>() == nullptr);
  EXPECT_TRUE(directory.get<WriterActor>() == nullptr);
  EXPECT_TRUE(directory.devices().empty());
  sink->let_go();
  const Json counts = daemon.wait(job)["request_counts"];
  EXPECT_EQ(counts["completed"].get<int>() + counts["failed"].get<int>(), 200);
  EXPECT_LE(counts["failed"], 1);
  spdlog::default_logger()->sinks().pop_back();
  daemon.stop();
}

TEST(ActorDeathTest, EndsTheDaemonWhenStartingAnewDoesNotHelp) {
  TestDaemon daemon;
  daemon.start();
  for (int i = 0; i < 200 && daemon.fatal_reason().empty(); ++i) {
    const auto before = daemon.daemon().directory().get<PreparerActor>();
    kill(daemon.daemon().directory(), Victim::kPreparer);
    daemon.wait_for([&] {
      return !daemon.fatal_reason().empty() ||
             daemon.daemon().directory().get<PreparerActor>() != before;
    });
  }
  EXPECT_NE(daemon.fatal_reason().find("preparer"), std::string::npos) << daemon.fatal_reason();
  daemon.stop(std::chrono::milliseconds(0));
}

TEST(UploadTest, GoesOnAfterTheIntakeDiedInTheMiddleOfIt) {
  TestDaemon daemon;
  daemon.start();
  std::string content;
  for (int i = 0; i < 3000; ++i) content += chat_line(fmt::format("l{}", i), "short", 1);
  bool killed = false;
  const std::string job = daemon.submit(content, Json::object(), [&](std::uint64_t acked) {
    if (killed || acked == 0) return;
    killed = true;
    kill(daemon.daemon().directory(), Victim::kIntake);
  });
  EXPECT_TRUE(killed);
  EXPECT_EQ(daemon.wait(job)["request_counts"]["completed"], 3000);
  daemon.stop();
}

}  // namespace
}  // namespace batchmill::testing
