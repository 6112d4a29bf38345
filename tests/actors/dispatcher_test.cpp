#include "actors/dispatcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <future>
#include <mutex>
#include <numeric>
#include <random>

#include "storage/store.h"
#include "tests/actors/test_daemon.h"
#include "tests/support/fullable_file_system.h"

namespace batchmill::testing {
namespace {

constexpr std::chrono::seconds kPatience{60};
constexpr const char* kFingerprint = "00000000000000aa";

// What devices were given, one list a message. Thread-safe.
class Deliveries {
 public:
  void add(const std::vector<WorkItem>& items) {
    const std::lock_guard lock(mutex_);
    lists_.push_back(items);
    arrived_.notify_all();
  }
  bool empty() const {
    const std::lock_guard lock(mutex_);
    return lists_.empty();
  }
  // The next one; waits for it.
  std::vector<WorkItem> take() {
    std::unique_lock lock(mutex_);
    if (!arrived_.wait_for(lock, kPatience, [&] { return !lists_.empty(); })) return {};
    std::vector<WorkItem> items = std::move(lists_.front());
    lists_.pop_front();
    return items;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::vector<WorkItem>> lists_;
};

DeviceWorkerActor::behavior_type receiving_device(DeviceWorkerActor::pointer,
                                                  std::shared_ptr<Deliveries> deliveries) {
  return {
      [=](work_atom, const std::vector<WorkItem>& items) { deliveries->add(items); },
      [](changed_atom, const JobId&) {},
      [](done_atom, const std::string&) {},
  };
}

// A dispatcher by itself, over a store whose disk can be full.
class DispatcherTest : public ::testing::Test {
 protected:
  DispatcherTest()
      : env_(rocksdb::NewCompositeEnv(disk_)),
        store_(
            open_store(directory_.path() + "/store", {}, JobStore::Mode::kReadWrite, env_.get())) {
    context_->store = store_.get();
    context_->clock = &clock_;
    context_->live = &live_;
    tested_ = system_.spawn(dispatcher, context_, std::vector<std::string>{kFingerprint},
                            std::make_shared<OpenAttempts>(), WorkPicker::Fit());
    context_->directory.set_devices({system_.spawn(receiving_device, deliveries_)});
  }
  ~DispatcherTest() override {
    caf::scoped_actor self{system_};
    self->send_exit(tested_, caf::exit_reason::user_shutdown);
    for (const auto& device : context_->directory.devices()) {
      self->send_exit(device, caf::exit_reason::user_shutdown);
    }
    tested_ = nullptr;
    context_->directory.clear();
  }

  // The dispatcher has answered all messages so far.
  bool is_done() {
    caf::scoped_actor self{system_};
    bool alive = false;
    self->request(tested_, kPatience, flush_atom::value, true)
        .receive([&](bool answer) { alive = answer; }, [](const caf::error&) {});
    return alive;
  }

  void plan_lines(std::uint64_t count) {
    const JobId id = store_->open_job({}, 1'700'000'000'000).job.id;
    std::vector<StoredLine> lines;
    JobStore::Prepared prepared;
    prepared.first_line = 1;
    prepared.last_line = count;
    for (std::uint64_t i = 1; i <= count; ++i) {
      lines.push_back({i, "{}", false});
      PlanEntry entry;
      entry.key = {id, i};
      entry.model = "m";
      entry.fingerprint = kFingerprint;
      entry.prompts = {{1, static_cast<TokenId>(i)}};
      prepared.entries.push_back(std::move(entry));
    }
    store_->append_lines(id, lines, count * 3, 0);
    store_->commit_prepared(id, std::move(prepared), 1'700'000'000);
  }

  void finish(const WorkItem& item) {
    LineResult result;
    result.key = item.key;
    result.attempt = item.attempt;
    result.outcome = LineOutcome::kCompleted;
    result.output = "{}";
    store_->commit_results(std::span(&result, 1), std::span(&item.plan_key, 1), 1'700'000'001);
    caf::anon_send(tested_, done_atom::value, std::vector<LineKey>{item.key});
  }

  TemporaryDirectory directory_;
  std::shared_ptr<FullableFileSystem> disk_ = std::make_shared<FullableFileSystem>();
  std::unique_ptr<rocksdb::Env> env_;
  std::unique_ptr<JobStore> store_;
  Clock clock_;
  LiveStats live_;
  std::shared_ptr<ActorContext> context_ = std::make_shared<ActorContext>();
  caf::actor_system_config config_;
  caf::actor_system system_{config_};
  std::shared_ptr<Deliveries> deliveries_ = std::make_shared<Deliveries>();
  DispatcherActor tested_;
};

TEST_F(DispatcherTest, AdmitsLinesOnceTheDiskHasSpaceAgain) {
  plan_lines(3);
  disk_->is_full = true;
  caf::anon_send(tested_, pull_atom::value, WorkRequest{0, 100, 1'000'000});
  EXPECT_TRUE(is_done());
  EXPECT_TRUE(deliveries_->empty());

  disk_->is_full = false;
  EXPECT_EQ(deliveries_->take().size(), 3u);
}

// The device asked for more while its last line ran. It gets the first line of the next job alone,
// as any idle device.
TEST_F(DispatcherTest, AWishFromBusierTimesIsForOneLine) {
  plan_lines(1);
  caf::anon_send(tested_, pull_atom::value, WorkRequest{0, 1, 1'000'000});
  const std::vector<WorkItem> first = deliveries_->take();
  ASSERT_EQ(first.size(), 1u);
  caf::anon_send(tested_, pull_atom::value, WorkRequest{0, 100, 1'000'000});
  finish(first.front());
  EXPECT_TRUE(is_done());  // before there is anything to give

  plan_lines(8);
  caf::anon_send(tested_, plan_atom::value);
  EXPECT_EQ(deliveries_->take().size(), 1u);
  caf::anon_send(tested_, pull_atom::value, WorkRequest{0, 100, 1'000'000});
  EXPECT_EQ(deliveries_->take().size(), 7u);
}

// A line of one of `num_families` families whose prompts share more than 150 tokens.
std::string family_line(int number, int num_families) {
  std::mt19937 random(static_cast<unsigned>(number % num_families));
  std::string system = "Profile " + std::to_string(number % num_families) + ".";
  for (int i = 0; i < 30; ++i) system += " w" + std::to_string(random() % 1000);
  std::mt19937 own(static_cast<unsigned>(1000 + number));
  std::string passage = "Passage " + std::to_string(number) + ":";
  for (int i = 0; i < 25; ++i) passage += " v" + std::to_string(own() % 1000);
  const Json line = {
      {"custom_id", std::to_string(number)},
      {"method", "POST"},
      {"url", "/v1/chat/completions"},
      {"body",
       {{"model", "tiny"},
        {"messages",
         {{{"role", "system"}, {"content", system}}, {{"role", "user"}, {"content", passage}}}},
        {"temperature", 0},
        {"max_tokens", 8},
        {"min_tokens", 8},
        {"ignore_eos", true}}}};
  return line.dump() + "\n";
}

struct ShuffledRun {
  double computed = 0.0;  // prompt tokens computed ÷ trie bound
  std::int64_t prompt_tokens = 0;
};

// The device's first step ends when the whole file is in the plan, as that of a real model does.
ShuffledRun run_shuffled(int num_lines, int num_families, std::int32_t num_blocks) {
  std::promise<void> planned;
  TestDaemonOptions options;
  options.num_blocks = num_blocks;
  options.engine.max_num_seqs = 64;
  options.engine.max_num_batched_tokens = 2048;
  options.before_step = [gate = planned.get_future().share()](std::int64_t step) {
    if (step == 0) gate.wait();
  };
  TestDaemon daemon(options);
  daemon.start();
  std::vector<int> order(static_cast<std::size_t>(num_lines));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::shuffle(order, std::mt19937(7));
  std::string content;
  for (const int number : order) content += family_line(number, num_families);
  const std::string job = daemon.submit(content);
  daemon.wait_until(job, [](const Json& batch) {
    return !batch.at("batchmill").at("prefix").at("possible_tokens").is_null();
  });
  planned.set_value();
  const Json batch = daemon.wait(job);
  EXPECT_EQ(batch.at("request_counts").at("completed"), num_lines) << batch.dump(1);
  const Json& usage = batch.at("usage");
  ShuffledRun run;
  run.prompt_tokens = usage.at("input_tokens");
  const std::int64_t cached = usage.at("input_tokens_details").at("cached_tokens");
  const std::int64_t possible = batch.at("batchmill").at("prefix").at("possible_tokens");
  run.computed = static_cast<double>(run.prompt_tokens - cached) /
                 static_cast<double>(run.prompt_tokens - possible);
  daemon.stop();
  return run;
}

TEST(PrefixesOfAJobTest, AreComputedOnceOnAPoolOfAThirdOfAllFamilies) {
  const ShuffledRun run = run_shuffled(192, 24, 24 * 150 / 3 / 16);
  EXPECT_GT(run.prompt_tokens, 192 * 270);
  EXPECT_LE(run.computed, 1.02);
}

TEST(PrefixesOfAJobTest, AreComputedOnceForOneFamily) {
  const ShuffledRun run = run_shuffled(128, 1, 1'200 / 16);
  EXPECT_LE(run.computed, 1.01);
}

// Half of the file is not there yet, and the client waits with it for the first result.
TEST(FirstResultTest, DoesNotWaitForTheRestOfTheFile) {
  TestDaemon daemon;
  daemon.start();
  std::string content;
  for (int i = 0; i < 3000; ++i) content += chat_line(std::to_string(i), "a line of a long file");
  TestClient other(daemon.daemon().control_endpoint());
  const auto has_result = [&] {
    const Json batches = other.request({{"what", "list"}}).at("batches");
    return !batches.empty() && batches[0].at("request_counts").at("completed") > 0;
  };
  bool waited = false;
  JobClient client(daemon.daemon().control_endpoint(), "test");
  const auto source = [&](std::uint64_t offset, char* buffer, std::size_t size) {
    if (offset > content.size() / 2 && !std::exchange(waited, true)) daemon.wait_for(has_result);
    const std::size_t count = std::min({size, content.size() - offset, std::size_t{16'384}});
    std::memcpy(buffer, content.data() + offset, count);
    return count;
  };
  const std::string job =
      client
          .upload(
              {{"key", "long"}}, source, [](std::uint64_t) {}, std::chrono::seconds(60))
          .job;
  EXPECT_TRUE(waited);
  EXPECT_EQ(daemon.wait(job).at("request_counts").at("completed"), 3000);
  daemon.stop();
}

}  // namespace
}  // namespace batchmill::testing
