#include "actors/work_picker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "storage/store.h"
#include "tests/actors/test_daemon.h"

namespace batchmill::testing {
namespace {

constexpr const char* kFingerprint = "00000000000000aa";

// Counts the pages of the plan that are read.
class CountingStore : public Store {
 public:
  explicit CountingStore(const std::string& directory)
      : Store(directory, {}, Mode::kReadWrite, nullptr) {}

  PlanPage read_plan(const PlanRange& range, std::size_t max_entries,
                     const std::set<JobId>& skipped) const override {
    ++num_pages;
    return Store::read_plan(range, max_entries, skipped);
  }

  mutable int num_pages = 0;
};

// A store with jobs whose plan entries the test writes itself.
class WorkPickerTest : public ::testing::Test {
 protected:
  WorkPickerTest()
      : store_(std::make_unique<CountingStore>(directory_.path() + "/store")),
        picker_(store_.get(), {kFingerprint}) {}

  JobId add_job(std::int32_t priority, int lines,
                const std::function<std::vector<TokenId>(int)>& prompt, bool short_lane = false) {
    JobRequest request;
    request.priority = priority;
    const JobId id = store_->open_job(request, 1'700'000'000'000).job.id;
    std::vector<StoredLine> stored;
    for (int i = 1; i <= lines; ++i) stored.push_back({static_cast<std::uint64_t>(i), "{}", false});
    store_->append_lines(id, stored, static_cast<std::uint64_t>(lines) * 3, 0);
    store_->seal(id, "", 1'700'000'000);
    plan(id, priority, 1, lines, prompt, short_lane);
    return id;
  }

  void plan(const JobId& id, std::int32_t priority, int first, int last,
            const std::function<std::vector<TokenId>(int)>& prompt, bool short_lane) {
    JobStore::Prepared prepared;
    prepared.first_line = static_cast<std::uint64_t>(first);
    prepared.last_line = static_cast<std::uint64_t>(last);
    for (int i = first; i <= last; ++i) {
      PlanEntry entry;
      entry.key = {id, static_cast<std::uint64_t>(i)};
      entry.model = "m";
      entry.fingerprint = fingerprint_;
      entry.priority = priority;
      entry.short_lane = short_lane;
      entry.prompts = {prompt(i)};
      entry.num_choices = 1;
      entry.max_tokens = 10;
      prepared.entries.push_back(std::move(entry));
    }
    store_->commit_prepared(id, std::move(prepared), 1'700'000'000);
    picker_.plan_changed();
  }

  std::vector<WorkItem> pick(std::uint32_t lines) { return picker_.pick({0, lines, UINT64_MAX}); }
  // The lines get results, as the writer gives them.
  void finish(const std::vector<WorkItem>& items) { finish(items, picker_); }
  void finish(const std::vector<WorkItem>& items, WorkPicker& picker) {
    std::vector<LineResult> results;
    std::vector<PlanKey> plan_keys;
    for (const WorkItem& item : items) {
      LineResult result;
      result.key = item.key;
      result.attempt = item.attempt;
      result.outcome = LineOutcome::kCompleted;
      result.output = "{}";
      results.push_back(std::move(result));
      plan_keys.push_back(item.plan_key);
    }
    store_->commit_results(results, plan_keys, 1'700'000'002);
    picker.done(keys(items));
  }

  static std::vector<LineKey> keys(const std::vector<WorkItem>& items) {
    std::vector<LineKey> keys;
    for (const WorkItem& item : items) keys.push_back(item.key);
    return keys;
  }

  TemporaryDirectory directory_;
  std::string fingerprint_ = kFingerprint;  // of the entries that are planned from now on
  std::unique_ptr<CountingStore> store_;
  WorkPicker picker_;
};

std::vector<TokenId> family_prompt(int i) {
  std::vector<TokenId> ids(80, 100 + i % 3);  // three families, interleaved in the file
  ids.push_back(i);
  return ids;
}

TEST_F(WorkPickerTest, HandsOutFamiliesTogetherAndEachLineOnce) {
  add_job(0, 30, family_prompt);
  std::vector<TokenId> families;
  std::set<std::uint64_t> lines;
  while (true) {
    const std::vector<WorkItem> items = pick(7);
    if (items.empty()) break;
    for (const WorkItem& item : items) {
      EXPECT_TRUE(lines.insert(item.key.line).second);
      EXPECT_EQ(item.attempt, 1u);
      families.push_back(item.prompts.front().front());
    }
  }
  EXPECT_EQ(lines.size(), 30u);
  EXPECT_TRUE(std::is_sorted(families.begin(), families.end()));
}

TEST_F(WorkPickerTest, SaysHowMuchOfAPromptLinesToComeBeginWith) {
  add_job(0, 6, family_prompt);
  std::vector<std::int32_t> wanted;
  for (int i = 0; i < 6; ++i) wanted.push_back(pick(1).front().num_wanted_tokens);
  // Two lines a family: the first is followed by its sister, the last one by nobody known.
  EXPECT_EQ(wanted, (std::vector<std::int32_t>{80, 0, 80, 0, 80, -1}));
}

TEST_F(WorkPickerTest, TheFirstLineOfALongJobHasTheDeviceToItself) {
  const auto prompt = [](int i) { return std::vector<TokenId>{7, i}; };
  add_job(0, static_cast<int>(WorkPicker::kLeadingJobLines), prompt);
  const std::vector<WorkItem> first = pick(1);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_TRUE(pick(100).empty());
  finish(first);
  EXPECT_EQ(pick(100).size(), 100u);
}

TEST_F(WorkPickerTest, TheFirstLineOfAShortJobHasNot) {
  const auto prompt = [](int i) { return std::vector<TokenId>{7, i}; };
  add_job(0, static_cast<int>(WorkPicker::kLeadingJobLines) - 1, prompt);
  ASSERT_EQ(pick(1).size(), 1u);
  EXPECT_EQ(pick(100).size(), 100u);
}

TEST_F(WorkPickerTest, StopsAtTheTokensAskedFor) {
  add_job(0, 10, family_prompt);
  EXPECT_EQ(picker_.pick({0, 100, 200}).size(), 3u);  // 81 + 81 + 81 ≥ 200
}

TEST_F(WorkPickerTest, SharesTheDeviceByPriority) {
  const auto prompt = [](int i) { return std::vector<TokenId>{7, i}; };
  const JobId low = add_job(0, 400, prompt);
  const JobId high = add_job(2, 400, prompt);
  std::map<JobId, int> lines;
  for (const WorkItem& item : pick(250)) ++lines[item.key.job];
  EXPECT_NEAR(lines[high], 200, 2);  // 2^2 : 1
  EXPECT_NEAR(lines[low], 50, 2);
}

TEST_F(WorkPickerTest, GivesTheShortLaneAQuarterWhileOthersWait) {
  const auto prompt = [](int i) { return std::vector<TokenId>{7, i}; };
  const JobId long_job = add_job(0, 1000, prompt);
  pick(500);  // the long job has been running for a while
  const JobId short_job = add_job(0, 100, prompt, /*short_lane=*/true);
  std::map<JobId, int> lines;
  for (const WorkItem& item : pick(200)) ++lines[item.key.job];
  EXPECT_NEAR(lines[short_job], 50, 2);
  EXPECT_NEAR(lines[long_job], 150, 2);
}

TEST_F(WorkPickerTest, TheShortLaneDoesNotHoldAHigherPriorityBack) {
  const auto prompt = [](int i) { return std::vector<TokenId>{7, i}; };
  const JobId low = add_job(0, 1000, prompt);
  pick(500);
  const JobId high = add_job(2, 400, prompt, /*short_lane=*/true);
  std::map<JobId, int> lines;
  for (const WorkItem& item : pick(250)) ++lines[item.key.job];
  EXPECT_NEAR(lines[high], 200, 2);  // 2^2 : 1
  EXPECT_NEAR(lines[low], 50, 2);
}

TEST_F(WorkPickerTest, LeavesLinesThatArriveDuringASweepToTheNextOne) {
  const auto prompt = [](int i) { return std::vector<TokenId>{i}; };
  add_job(0, 10, prompt);
  const std::vector<WorkItem> first = pick(2);  // the sweep has started
  add_job(0, 5, [](int i) { return std::vector<TokenId>{3, i}; });  // between lines 3 and 4
  std::vector<JobId> order;
  for (const WorkItem& item : pick(100)) order.push_back(item.key.job);
  ASSERT_EQ(order.size(), 13u);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], first[0].key.job);
}

TEST_F(WorkPickerTest, BeginsASweepAnewAfterItsFirstLine) {
  const auto prompt = [](int i) { return std::vector<TokenId>{5, i}; };
  add_job(0, 4, prompt);
  pick(1);  // before the other job's lines are planned
  const JobId late = add_job(0, 3, [](int i) { return std::vector<TokenId>{4, i}; });
  const std::vector<WorkItem> items = pick(100);
  ASSERT_EQ(items.size(), 6u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(items[i].key.job, late);
}

TEST_F(WorkPickerTest, LetsLinesJoinWhosePrefixIsInTheCache) {
  add_job(0, 6, [](int i) { return std::vector<TokenId>(70, i < 4 ? 1 : 2); });
  pick(2);
  const JobId late = add_job(0, 1, [](int) {
    std::vector<TokenId> ids(70, 1);
    ids.push_back(9);
    return ids;
  });
  std::vector<JobId> order;
  for (const WorkItem& item : pick(100)) order.push_back(item.key.job);
  const auto at = std::find(order.begin(), order.end(), late) - order.begin();
  EXPECT_EQ(at, 1);  // behind line 3, before the other family
}

TEST_F(WorkPickerTest, SkipsPausedAndEndedJobs) {
  const auto prompt = [](int i) { return std::vector<TokenId>{i}; };
  const JobId paused = add_job(0, 5, prompt);
  const JobId ended = add_job(0, 5, prompt);
  store_->set_paused(paused, true);
  picker_.job_changed(paused);
  store_->end_job(ended, "batch_cancelled", 1'700'000'001);
  picker_.job_changed(ended);
  EXPECT_TRUE(pick(100).empty());
  store_->set_paused(paused, false);
  picker_.job_changed(paused);
  EXPECT_EQ(pick(100).size(), 5u);
}

// A paused job may hold millions of entries.
TEST_F(WorkPickerTest, LooksThroughAPausedJobOnceUntilSomethingMayRun) {
  const auto prompt = [](int i) { return std::vector<TokenId>{i}; };
  const JobId paused = add_job(0, 3000, prompt);
  store_->set_paused(paused, true);
  picker_.job_changed(paused);
  EXPECT_TRUE(pick(100).empty());
  store_->num_pages = 0;
  // The plan of another level changes again and again.
  const JobId other = add_job(1, 20, prompt);
  for (int i = 0; i < 20; ++i) {
    picker_.plan_changed();
    const std::vector<WorkItem> items = pick(1);
    ASSERT_EQ(items.size(), 1u);
    EXPECT_EQ(items[0].key.job, other);
    finish(items);
  }
  EXPECT_TRUE(pick(1).empty());
  EXPECT_LE(store_->num_pages, 30);  // the paused entries alone are 12 pages
  // New entries of its own level are found among the paused ones, and so are these in the end.
  add_job(0, 5, prompt);
  EXPECT_EQ(pick(100).size(), 5u);
  store_->set_paused(paused, false);
  picker_.job_changed(paused);
  EXPECT_EQ(pick(3000).size(), 3000u);
}

TEST_F(WorkPickerTest, HandsOutAgainWhatCameBack) {
  add_job(0, 4, family_prompt);
  const std::vector<WorkItem> items = pick(100);
  ASSERT_EQ(items.size(), 4u);
  EXPECT_TRUE(pick(100).empty());
  picker_.returned(keys(items));
  EXPECT_EQ(pick(100).size(), 4u);
}

TEST_F(WorkPickerTest, RunsALineAloneAfterTwoLostAttempts) {
  const JobId job = add_job(0, 6, [](int i) { return std::vector<TokenId>{i}; });
  const LineKey suspect{job, 3};
  store_->begin_attempts(std::span(&suspect, 1));
  store_->begin_attempts(std::span(&suspect, 1));

  const std::vector<WorkItem> others = pick(100);
  EXPECT_EQ(others.size(), 2u);  // those before it; then the device must run empty
  EXPECT_TRUE(pick(100).empty());
  finish(others);
  const std::vector<WorkItem> alone = pick(100);
  ASSERT_EQ(alone.size(), 1u);
  EXPECT_EQ(alone[0].key, suspect);
  EXPECT_EQ(alone[0].attempt, 3u);
  EXPECT_TRUE(pick(100).empty());
  finish(alone);
  EXPECT_EQ(pick(100).size(), 3u);
}

// Alone in the process: what runs on another device would die with it.
TEST_F(WorkPickerTest, ALineThatRunsAloneHasNoNeighbourOnOtherDevices) {
  constexpr const char* kOther = "00000000000000bb";
  const JobId job = add_job(0, 3, [](int i) { return std::vector<TokenId>{i}; });
  fingerprint_ = kOther;
  const JobId other = add_job(0, 3, [](int i) { return std::vector<TokenId>{i}; });
  WorkPicker picker(store_.get(), {kFingerprint, kOther});
  const auto pick_on = [&](std::uint32_t device, std::uint32_t lines) {
    return picker.pick({device, lines, UINT64_MAX});
  };
  const LineKey suspect{job, 1};
  store_->begin_attempts(std::span(&suspect, 1));
  store_->begin_attempts(std::span(&suspect, 1));

  const std::vector<WorkItem> neighbours = pick_on(1, 2);
  ASSERT_EQ(neighbours.size(), 2u);
  EXPECT_TRUE(pick_on(0, 100).empty());  // the suspect waits for the other device
  EXPECT_TRUE(pick_on(1, 100).empty());  // which gets no more
  finish(neighbours, picker);
  EXPECT_TRUE(pick_on(1, 100).empty());
  const std::vector<WorkItem> alone = pick_on(0, 100);
  ASSERT_EQ(alone.size(), 1u);
  EXPECT_EQ(alone[0].key, suspect);
  EXPECT_TRUE(pick_on(1, 100).empty());
  finish(alone, picker);
  const std::vector<WorkItem> last = pick_on(1, 100);
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(last[0].key, (LineKey{other, 3}));
  EXPECT_EQ(last[0].attempt, 1u);
  EXPECT_EQ(pick_on(0, 100).size(), 2u);
}

TEST_F(WorkPickerTest, FailsALineThatEndedTheProcessAlone) {
  const JobId job = add_job(0, 2, [](int i) { return std::vector<TokenId>{i}; });
  const LineKey poison{job, 1};
  for (int i = 0; i < 3; ++i) store_->begin_attempts(std::span(&poison, 1));
  EXPECT_EQ(pick(100).size(), 1u);
  const std::vector<WorkItem> poisoned = picker_.take_poisoned();
  ASSERT_EQ(poisoned.size(), 1u);
  EXPECT_EQ(poisoned[0].key, poison);
}

TEST_F(WorkPickerTest, KeepsNothingOfLinesThatAreDone) {
  add_job(0, 2000, [](int i) { return std::vector<TokenId>{i % 50, i}; });
  for (int round = 0; round < 200; ++round) {
    const std::vector<WorkItem> items = pick(10);
    EXPECT_LE(picker_.num_in_flight(), 10u);
    finish(items);
  }
  EXPECT_EQ(picker_.num_in_flight(), 0u);
}

// Two devices run the model.
class TwoDevicesTest : public WorkPickerTest {
 protected:
  TwoDevicesTest() : picker_(store_.get(), {kFingerprint, kFingerprint}) {}

  std::vector<WorkItem> pick(std::uint32_t device, std::uint32_t lines) {
    picker_.plan_changed();
    return picker_.pick({device, lines, UINT64_MAX});
  }

  WorkPicker picker_;
};

TEST_F(TwoDevicesTest, HaveRangesOfTheirOwnAndEachLineOnce) {
  // 100 families of ten neighbours.
  add_job(0, 999, [](int i) {
    std::vector<TokenId> ids(80, 100 + i % 100);
    ids.push_back(i);
    return ids;
  });
  std::set<std::uint64_t> lines;
  std::map<TokenId, std::set<std::uint32_t>> devices_of_family;
  std::vector<std::size_t> counts(2);
  for (bool any = true; any;) {
    any = false;
    for (const std::uint32_t device : {0u, 1u}) {
      const std::vector<WorkItem> items = pick(device, 4);
      any |= !items.empty();
      counts[device] += items.size();
      for (const WorkItem& item : items) {
        EXPECT_TRUE(lines.insert(item.key.line).second);
        devices_of_family[item.prompts.front().front()].insert(device);
      }
      finish(items);
      picker_.done(keys(items));
    }
  }
  EXPECT_EQ(lines.size(), 999u);
  EXPECT_NEAR(static_cast<double>(counts[0]), static_cast<double>(counts[1]), 64.0);
  const auto shared = std::ranges::count_if(
      devices_of_family, [](const auto& family) { return family.second.size() > 1; });
  EXPECT_LE(shared, 6);  // those at the end, where the rest is divided
}

TEST_F(TwoDevicesTest, DivideASmallJob) {
  add_job(0, 20, family_prompt);
  std::vector<std::size_t> counts(2);
  // Device 0 asks again and again before device 1 asks for the second time.
  counts[0] += pick(0, 1).size();
  counts[1] += pick(1, 1).size();
  for (int i = 0; i < 5; ++i) counts[0] += pick(0, 64).size();
  for (int i = 0; i < 5; ++i) counts[1] += pick(1, 64).size();
  EXPECT_EQ(counts, (std::vector<std::size_t>{10, 10}));
}

TEST_F(TwoDevicesTest, OneWithoutWorkTakesHalfOfTheOthersRun) {
  add_job(0, 128, [](int i) { return std::vector<TokenId>{7, i}; });
  pick(0, 1);
  EXPECT_EQ(pick(0, 4).size(), 4u);  // of a run of 63
  // 35 of the 64 that nobody has, then 29 of the 59 that device 0 has not taken: half of all.
  EXPECT_EQ(pick(1, 200).size(), 64u);
}

TEST_F(TwoDevicesTest, OneDoesAllWhenTheOtherNeverAsks) {
  add_job(0, 300, family_prompt);
  std::size_t lines = 0;
  for (auto items = pick(0, 10); !items.empty(); items = pick(0, 10)) {
    lines += items.size();
    finish(items);
    picker_.done(keys(items));
  }
  EXPECT_EQ(lines, 300u);
}

TEST_F(TwoDevicesTest, TheLinesOfALostOneRunOnTheOther) {
  add_job(0, 300, family_prompt);
  std::set<std::uint64_t> finished;
  const std::vector<WorkItem> lost = pick(1, 8);
  ASSERT_EQ(lost.size(), 8u);
  const std::vector<LineKey> back = picker_.device_lost(1);
  EXPECT_EQ(std::set(back.begin(), back.end()).size(), 8u);
  EXPECT_TRUE(pick(1, 8).empty());
  for (auto items = pick(0, 10); !items.empty(); items = pick(0, 10)) {
    for (const WorkItem& item : items) EXPECT_TRUE(finished.insert(item.key.line).second);
    finish(items);
    picker_.done(keys(items));
  }
  EXPECT_EQ(finished.size(), 300u);
  EXPECT_EQ(picker_.num_in_flight(), 0u);
}

}  // namespace
}  // namespace batchmill::testing
