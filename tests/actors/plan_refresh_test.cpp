#include "actors/plan_refresh.h"

#include <fmt/format.h>

#include <set>

#include "tests/storage/store_fixture.h"

namespace batchmill {
namespace {

class PlanRefreshTest : public StoreTest {
 protected:
  PlanRefreshTest() {
    ModelCatalog::Entry entry;
    entry.served.name = "smol";
    entry.served.model = Model::open(BATCHMILL_TEST_DATA "/models/llama3/model-q4_0.gguf");
    entry.context_tokens = 100;
    entry.pool_tokens = 1'000;
    catalog_ = std::make_unique<ModelCatalog>(std::vector{entry});
    context_ = std::make_shared<ActorContext>();
    context_->store = store_.get();
    context_->catalog = catalog_.get();
    context_->clock = &clock_;
    context_->live = &live_;
    preparer_ = std::make_shared<LinePreparer>(catalog_.get(), 16, 16, 1 << 20);
  }

  // Lines whose plan entries are of another fingerprint than the model's; every second one is in
  // the short lane, every tenth is too long for the model as it is now.
  JobId stale_job(int num_lines) {
    const JobId id = new_job();
    std::vector<StoredLine> lines;
    JobStore::Prepared prepared;
    prepared.first_line = 1;
    prepared.last_line = static_cast<std::uint64_t>(num_lines);
    for (int i = 1; i <= num_lines; ++i) {
      const std::string prompt = i % 10 == 0 ? std::string(2'000, '!') : fmt::format("text {}", i);
      lines.push_back({static_cast<std::uint64_t>(i),
                       fmt::format(R"({{"custom_id": "{}", "method": "POST", )"
                                   R"("url": "/v1/completions", "body": {{"prompt": "{}"}}}})",
                                   i, prompt)});
      PlanEntry entry = make_entry(id, lines.back().line, {i});
      entry.short_lane = i % 2 == 0;
      prepared.entries.push_back(std::move(entry));
    }
    store_->append_lines(id, lines, 1'000, kNowUs);
    EXPECT_TRUE(store_->seal(id, "hash", kNowS));
    EXPECT_TRUE(store_->commit_prepared(id, std::move(prepared), kNowS));
    return id;
  }

  // Lines planned for `fingerprint`, with their lanes.
  std::set<std::pair<std::uint64_t, bool>> planned(const std::string& fingerprint) {
    std::set<std::pair<std::uint64_t, bool>> lines;
    for (const PlanLevel& level : store_->plan_levels()) {
      if (level.fingerprint != fingerprint) continue;
      for (const PlanItem& item : store_->read_plan({level.first, level.limit}, 10'000).items) {
        lines.emplace(item.line.line, level.short_lane);
      }
    }
    return lines;
  }

  Clock clock_;
  LiveStats live_;
  std::unique_ptr<ModelCatalog> catalog_;
  std::shared_ptr<ActorContext> context_;
  std::shared_ptr<const LinePreparer> preparer_;
};

TEST_F(PlanRefreshTest, PreparesAPageAtATimeAndKeepsTheLanes) {
  constexpr int kLines = 500;
  const JobId id = stale_job(kLines);
  const std::string current = catalog_->entries().front().served.model->fingerprint();
  PlanRefresh refresh(context_, preparer_);
  int steps = 0;
  bool more = true;
  while (more) {
    const std::size_t before = planned(kFingerprint).size();
    more = refresh.step();
    ++steps;
    EXPECT_LE(before - planned(kFingerprint).size(), 64u);
  }
  EXPECT_GE(steps, kLines / 64);
  EXPECT_TRUE(planned(kFingerprint).empty());
  std::set<std::pair<std::uint64_t, bool>> expected;
  for (std::uint64_t line = 1; line <= kLines; ++line) {
    if (line % 10 != 0) expected.emplace(line, line % 2 == 0);
  }
  EXPECT_EQ(planned(current), expected);
  EXPECT_EQ(store_->job(id)->counters.failed, static_cast<std::uint64_t>(kLines) / 10);
  EXPECT_FALSE(refresh.step());
}

TEST_F(PlanRefreshTest, EndsAJobWhoseLastLinesFail) {
  const JobId id = new_job();
  store_->append_lines(id, std::vector<StoredLine>{{1, "broken"}}, 6, kNowUs);
  EXPECT_TRUE(store_->seal(id, "hash", kNowS));
  JobStore::Prepared prepared;
  prepared.first_line = 1;
  prepared.last_line = 1;
  prepared.entries.push_back(make_entry(id, 1, {3}));
  EXPECT_TRUE(store_->commit_prepared(id, std::move(prepared), kNowS));
  PlanRefresh refresh(context_, preparer_);
  EXPECT_FALSE(refresh.step());
  EXPECT_TRUE(store_->job(id)->ended());
}

TEST_F(PlanRefreshTest, LeavesLinesOfAModelThatIsNotConfigured) {
  const JobId id = new_job();
  store_->append_lines(id, std::vector<StoredLine>{{1, "broken"}}, 6, kNowUs);
  EXPECT_TRUE(store_->seal(id, "hash", kNowS));
  JobStore::Prepared prepared;
  prepared.first_line = 1;
  prepared.last_line = 1;
  prepared.entries.push_back(make_entry(id, 1, {3}));
  prepared.entries.front().model = "gone";
  EXPECT_TRUE(store_->commit_prepared(id, std::move(prepared), kNowS));
  PlanRefresh refresh(context_, preparer_);
  while (refresh.step()) {
  }
  EXPECT_EQ(planned(kFingerprint).size(), 1u);
  EXPECT_FALSE(store_->job(id)->ended());
}

}  // namespace
}  // namespace batchmill
