#include <gtest/gtest.h>

#include <map>
#include <random>
#include <thread>

#include "tests/storage/store_fixture.h"

namespace batchmill {
namespace {

class PreparationTest : public StoreTest {};

TEST_F(PreparationTest, WatermarkEntriesAndFailuresMoveTogether) {
  const JobId id = new_job();
  std::vector<StoredLine> lines = make_lines(1, 4);
  lines[1].bytes = " \r";  // blank
  store_->append_lines(id, lines, 400, kNowUs);
  ASSERT_TRUE(store_->seal(id, "hash", kNowS));
  EXPECT_EQ(store_->job(id)->status(), "validating");
  EXPECT_EQ(store_->job(id)->state.request_lines, 3u);
  JobStore::Prepared prepared;
  prepared.first_line = 1;
  prepared.last_line = 4;
  prepared.entries.push_back(make_entry(id, 1, {1, 2, 3}));
  prepared.entries.push_back(make_entry(id, 4, {1, 2}));
  prepared.failures.push_back(make_failure(id, 3, "invalid_json_line"));
  prepared.custom_ids = {{"a", 1}, {"b", 4}};
  prepared.warnings = {"field x is ignored", "field x is ignored"};
  ASSERT_TRUE(store_->commit_prepared(id, prepared, kNowS));
  EXPECT_FALSE(store_->commit_prepared(id, prepared, kNowS));  // the watermark is past it
  open();
  const Job job = *store_->job(id);
  EXPECT_EQ(job.status(), "in_progress");
  EXPECT_EQ(job.state.prepared_through, 4u);
  EXPECT_EQ(job.state.warnings, std::vector<std::string>{"field x is ignored"});
  EXPECT_EQ(job.counters.failed, 1u);
  EXPECT_EQ(whole_plan().size(), 2u);
  const std::vector<std::string> asked{"b", "none", "a"};
  EXPECT_EQ(store_->find_owners(id, asked), (std::vector<std::uint64_t>{4, 0, 1}));
  EXPECT_EQ(store_->result({id, 3})->error_code, "invalid_json_line");
  EXPECT_EQ(store_->result({id, 3})->times.queued_us, kNowUs);
  expect_sound();
}

// A strict job is checked before anything of it is prepared: its ids wait in the store meanwhile.
TEST_F(PreparationTest, LinesOwnTheirIdsBeforeTheyArePrepared) {
  JobRequest request;
  request.strict = true;
  const JobId id = sealed_job(3, request);
  const std::vector<std::pair<std::string, std::uint64_t>> owned{{"a", 1}, {"b", 3}};
  store_->claim_ids(id, owned);
  expect_sound();
  open();
  const std::vector<std::string> asked{"b", "none", "a"};
  EXPECT_EQ(store_->find_owners(id, asked), (std::vector<std::uint64_t>{3, 0, 1}));
  store_->fail_job(id, "invalid_request", {}, kNowS);
  EXPECT_EQ(store_->find_line(id, "a"), 0u);
  store_->claim_ids(id, owned);  // too late
  EXPECT_EQ(store_->find_line(id, "a"), 0u);
  expect_sound();
}

TEST_F(PreparationTest, RefusesGapsAndLinesThatAreNotThere) {
  const JobId id = sealed_job(5);
  JobStore::Prepared prepared;
  prepared.first_line = 2;
  prepared.last_line = 3;
  EXPECT_THROW(store_->commit_prepared(id, prepared, kNowS), std::invalid_argument);
  prepared.first_line = 1;
  prepared.last_line = 6;
  EXPECT_THROW(store_->commit_prepared(id, prepared, kNowS), std::invalid_argument);
  prepared.last_line = 2;
  prepared.entries.push_back(make_entry(id, 3, {1}));
  EXPECT_THROW(store_->commit_prepared(id, prepared, kNowS), std::invalid_argument);
  EXPECT_TRUE(whole_plan().empty());
  expect_sound();
}

// A line can be read as soon as it is written, which is before the call that appends it returns.
TEST_F(PreparationTest, TakesLinesWhoseAppendIsReturning) {
  constexpr std::uint64_t kLines = 300;
  const JobId id = new_job();
  const JobId other = new_job();
  std::jthread busy([&](const std::stop_token& stop) {  // the append has to wait for its writes
    for (bool paused = true; !stop.stop_requested(); paused = !paused) {
      store_->set_paused(other, paused);
    }
  });
  std::jthread upload([&] {
    for (std::uint64_t line = 1; line <= kLines; ++line) {
      store_->append_lines(id, make_lines(line, line), line * 20, kNowUs);
    }
  });
  for (std::uint64_t through = 0; through < kLines;) {
    const std::vector<StoredLine> lines = store_->read_lines(id, through + 1, 100, 1 << 20);
    if (lines.empty()) continue;
    JobStore::Prepared prepared;
    prepared.first_line = through + 1;
    prepared.last_line = through = lines.back().line;
    for (const StoredLine& line : lines) prepared.entries.push_back(make_entry(id, line.line, {7}));
    ASSERT_TRUE(store_->commit_prepared(id, std::move(prepared), kNowS));
  }
}

TEST_F(PreparationTest, IsIgnoredOnceTheJobHasEnded) {
  const JobId id = sealed_job(2);
  ASSERT_TRUE(store_->end_job(id, "batch_cancelled", kNowS));
  JobStore::Prepared prepared;
  prepared.first_line = 1;
  prepared.last_line = 2;
  prepared.entries.push_back(make_entry(id, 1, {1}));
  EXPECT_FALSE(store_->commit_prepared(id, prepared, kNowS));
  EXPECT_EQ(store_->check().plan_entries, 0u);
}

TEST_F(PreparationTest, AStrictJobWaitsForItsCheck) {
  JobRequest request;
  request.strict = true;
  const JobId id = prepared_job(2, request);
  EXPECT_EQ(store_->job(id)->status(), "validating");
  ASSERT_TRUE(finish(id, 1));
  ASSERT_TRUE(finish(id, 2));
  EXPECT_TRUE(store_->end_finished_jobs(kNowS).empty());
  store_->set_strict_checked(id);
  EXPECT_EQ(store_->job(id)->status(), "in_progress");
  EXPECT_EQ(store_->end_finished_jobs(kNowS), std::vector<JobId>{id});
}

TEST_F(PreparationTest, AStrictJobThatFailsCarriesItsErrors) {
  JobRequest request;
  request.strict = true;
  const JobId id = prepared_job(3, request);
  store_->fail_job(id, "invalid_json_line", {{"invalid_json_line", "line 2 is no JSON", 2}}, kNowS);
  open();
  const Job job = *store_->job(id);
  EXPECT_EQ(job.status(), "failed");
  ASSERT_EQ(job.state.errors.size(), 1u);
  EXPECT_EQ(job.state.errors[0].line, 2u);
  EXPECT_EQ(job.counters.failed, 3u);
  EXPECT_TRUE(whole_plan().empty());
}

// The computed tokens of a trie walked in order: every new node, and the last token of a prompt
// that adds none.
class SlowTrie {
 public:
  void add(const std::vector<std::int32_t>& ids) {
    Node* node = &root_;
    std::uint64_t num_new = 0;
    for (std::int32_t id : ids) {
      auto& child = node->children[id];
      if (child == nullptr) {
        child = std::make_unique<Node>();
        ++num_new;
      }
      node = child.get();
    }
    tokens_ += num_new;
    node->prompts += ids.empty() ? 0 : 1;
  }
  std::uint64_t tokens() const { return tokens_ + repeats(root_); }

 private:
  struct Node {
    std::map<std::int32_t, std::unique_ptr<Node>> children;
    std::uint64_t prompts = 0;
  };
  static std::uint64_t repeats(const Node& node) {
    std::uint64_t count = node.prompts > 1 ? node.prompts - 1 : 0;
    for (const auto& [id, child] : node.children) count += repeats(*child);
    return count;
  }
  Node root_;
  std::uint64_t tokens_ = 0;
};

TEST_F(PreparationTest, MeasuredPrefixesEqualATrie) {
  std::mt19937_64 random(21);
  for (int round = 0; round < 8; ++round) {
    const std::uint64_t num_lines = 1 + random() % 80;
    const JobId id = sealed_job(num_lines);
    // Two models share nothing; long prompts differ only behind what a plan key holds.
    std::map<std::string, SlowTrie> tries;
    std::uint64_t num_tokens = 0;
    std::vector<std::int32_t> stem(1'300);
    for (auto& token : stem) token = static_cast<std::int32_t>(random() % 50'000);
    std::uint64_t line = 1;
    while (line <= num_lines) {
      JobStore::Prepared prepared;
      prepared.first_line = line;
      for (std::uint64_t i = random() % 20 + 1; i > 0 && line <= num_lines; --i, ++line) {
        PlanEntry entry = make_entry(id, line, {});
        entry.prompts.clear();
        entry.fingerprint = random() % 4 == 0 ? "00000000000000ff" : kFingerprint;
        for (std::uint64_t p = random() % 3 + 1; p > 0; --p) {
          std::vector<std::int32_t> prompt(
              stem.begin(), stem.begin() + static_cast<long>(random() % stem.size()));
          for (std::uint64_t t = random() % 4 + (prompt.empty() ? 1 : 0); t > 0; --t) {
            prompt.push_back(static_cast<std::int32_t>(random() % 3));
          }
          if (random() % 5 == 0 && !entry.prompts.empty()) prompt = entry.prompts.front();
          tries[entry.fingerprint].add(prompt);
          num_tokens += prompt.size();
          entry.prompts.push_back(std::move(prompt));
        }
        prepared.entries.push_back(std::move(entry));
      }
      prepared.last_line = line - 1;
      store_->measure_prefixes(id);  // too early: does nothing
      ASSERT_TRUE(store_->commit_prepared(id, std::move(prepared), kNowS));
    }
    EXPECT_EQ(store_->job(id)->state.prefix_trie_tokens, 0u);
    if (round % 2 == 0) open();
    store_->measure_prefixes(id);
    std::uint64_t expected = 0;
    for (const auto& [fingerprint, trie] : tries) expected += trie.tokens();
    EXPECT_EQ(store_->job(id)->state.prefix_prompt_tokens, num_tokens);
    EXPECT_EQ(store_->job(id)->state.prefix_trie_tokens, expected);
    store_->measure_prefixes(id);  // known: stays
    EXPECT_EQ(store_->job(id)->state.prefix_trie_tokens, expected);
  }
}

TEST_F(PreparationTest, AFinishedJobIsMeasured) {
  const JobId id = prepared_job(8);
  for (std::uint64_t line = 1; line <= 8; ++line) ASSERT_TRUE(finish(id, line));
  EXPECT_EQ(store_->end_finished_jobs(kNowS), std::vector<JobId>{id});
  // Prompts {line % 4, line}: 4 first tokens, 8 second ones.
  EXPECT_EQ(store_->job(id)->state.prefix_prompt_tokens, 16u);
  EXPECT_EQ(store_->job(id)->state.prefix_trie_tokens, 12u);
}

}  // namespace
}  // namespace batchmill
