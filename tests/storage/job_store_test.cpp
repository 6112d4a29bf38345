#include "storage/job_store.h"

#include <gtest/gtest.h>

#include "tests/storage/store_fixture.h"

namespace batchmill {
namespace {

class JobStoreTest : public StoreTest {};

TEST_F(JobStoreTest, KeepsWhatAJobWasMadeWith) {
  JobRequest request;
  request.name = "nightly";
  request.priority = -3;
  request.deadline_s = 3600;
  request.metadata = {{"team", "search"}};
  const JobId id = new_job(request);
  open();
  const Job job = *store_->job(id);
  EXPECT_EQ(job.request, request);
  EXPECT_EQ(job.status(), "validating");
  EXPECT_GE(job.state.created_at_s, kNowS);
  EXPECT_FALSE(store_->job(JobId{}));
}

TEST_F(JobStoreTest, IdsAndTimesNeverGoBack) {
  const JobId first = store_->open_job({}, kNowMs).job.id;
  open();
  const JobStore::Opened second = store_->open_job({}, kNowMs - 5'000'000);
  EXPECT_LT(first, second.job.id);
  EXPECT_GE(second.job.state.created_at_s, kNowS);
  const JobId third = sealed_job(1);
  store_->end_job(third, "batch_cancelled", kNowS + 100);
  const JobId fourth = sealed_job(1);
  store_->end_job(fourth, "batch_cancelled", kNowS - 100);
  EXPECT_GE(store_->job(fourth)->state.cancelled_at_s, kNowS + 100);
}

TEST_F(JobStoreTest, ListsNewestFirst) {
  std::vector<JobId> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(sealed_job(1));
  store_->end_job(ids[1], "batch_cancelled", kNowS);
  const std::vector<Job> all = store_->list(std::nullopt, 10, "");
  ASSERT_EQ(all.size(), 5u);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(all[i].id, ids[4 - i]);
  const std::vector<Job> page = store_->list(ids[3], 2, "");
  ASSERT_EQ(page.size(), 2u);
  EXPECT_EQ(page[0].id, ids[2]);
  EXPECT_EQ(page[1].id, ids[1]);
  const std::vector<Job> cancelled = store_->list(std::nullopt, 10, "cancelled");
  ASSERT_EQ(cancelled.size(), 1u);
  EXPECT_EQ(cancelled[0].id, ids[1]);
  EXPECT_EQ(store_->unfinished_jobs(), (std::vector<JobId>{ids[0], ids[2], ids[3], ids[4]}));
}

TEST_F(JobStoreTest, TheSameKeyIsTheSameJob) {
  JobRequest request;
  request.idempotency_key = "k";
  request.content_hash = "content";
  request.model_fingerprint = "model";
  const JobId id = new_job(request);
  open();
  const JobStore::Opened again = store_->open_job(request, kNowMs);
  EXPECT_TRUE(again.existed);
  EXPECT_EQ(again.conflict, "");
  EXPECT_EQ(again.job.id, id);
  JobRequest unknown_content = request;
  unknown_content.content_hash.clear();
  EXPECT_EQ(store_->open_job(unknown_content, kNowMs).conflict, "");
  JobRequest other_content = request;
  other_content.content_hash = "other";
  EXPECT_EQ(store_->open_job(other_content, kNowMs).conflict, "other content");
  JobRequest other_model = request;
  other_model.model_fingerprint = "other";
  EXPECT_EQ(store_->open_job(other_model, kNowMs).conflict, "another model");
  JobRequest strict = other_content;
  strict.strict = true;
  EXPECT_EQ(store_->open_job(strict, kNowMs).conflict, "other content and no --strict");
  JobRequest renamed = request;
  renamed.name = "other";
  renamed.priority = 3;
  EXPECT_EQ(store_->open_job(renamed, kNowMs).conflict, "");
  JobRequest other_key = request;
  other_key.idempotency_key = "k2";
  EXPECT_FALSE(store_->open_job(other_key, kNowMs).existed);
  EXPECT_EQ(store_->list(std::nullopt, 10, "").size(), 2u);
}

TEST_F(JobStoreTest, EachOwnerHasKeysAndJobsOfItsOwn) {
  JobRequest request;
  request.idempotency_key = "k";
  std::vector<JobId> ids;
  const std::vector<std::string> owners = {"", "ann", "bob"};
  for (const std::string& owner : owners) {
    request.owner = owner;
    const JobStore::Opened opened = store_->open_job(request, kNowMs);
    EXPECT_FALSE(opened.existed);
    ids.push_back(opened.job.id);
  }
  open();
  for (std::size_t i = 0; i < owners.size(); ++i) {
    request.owner = owners[i];
    EXPECT_EQ(store_->open_job(request, kNowMs).job.id, ids[i]);
    EXPECT_EQ(store_->job_of_key("k", owners[i])->id, ids[i]);
    EXPECT_EQ(store_->job(ids[i])->request.owner, owners[i]);
    const std::vector<Job> own = store_->list(std::nullopt, 10, "", owners[i]);
    ASSERT_EQ(own.size(), 1u);
    EXPECT_EQ(own[0].id, ids[i]);
  }
  EXPECT_EQ(store_->list(std::nullopt, 10, "").size(), 3u);
  // An empty upload takes its owner's key away, no other.
  EXPECT_FALSE(store_->seal(ids[1], "", kNowS));
  EXPECT_FALSE(store_->job_of_key("k", "ann"));
  EXPECT_TRUE(store_->job_of_key("k", "bob"));
  EXPECT_TRUE(store_->job_of_key("k"));
}

TEST_F(JobStoreTest, LinesSentAgainAreStoredOnce) {
  const JobId id = new_job();
  store_->append_lines(id, make_lines(1, 10), 1'000, kNowUs);
  store_->append_lines(id, make_lines(6, 12), 1'200, kNowUs);
  open();
  store_->append_lines(id, make_lines(1, 12), 1'200, kNowUs);
  EXPECT_THROW(store_->append_lines(id, make_lines(14, 14), 1'400, kNowUs), std::invalid_argument);
  const Job job = *store_->job(id);
  EXPECT_EQ(job.state.total_lines, 12u);
  EXPECT_EQ(job.state.request_lines, 12u);
  EXPECT_EQ(job.state.upload_offset_bytes, 1'200u);
  const std::vector<StoredLine> lines = store_->read_lines(id, 3, 5, 1 << 20);
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[0].line, 3u);
  EXPECT_EQ(lines[0].bytes, "{\"line\": 3}");
  EXPECT_EQ(lines[0].queued_us, kNowUs);
  EXPECT_EQ(store_->read_lines(id, 1, 100, 1).size(), 1u);
  EXPECT_EQ(store_->line({id, 12})->bytes, "{\"line\": 12}");
  EXPECT_FALSE(store_->line({id, 13}));
}

TEST_F(JobStoreTest, BlankLinesInARowAreOneRecordAndKeepTheirNumbers) {
  const JobId id = new_job();
  StoredLine run{1'000'000, ""};
  run.num_lines = 999'999;  // 2 … 1,000,000
  const std::vector<StoredLine> first{{1, "{}"}, run};
  store_->append_lines(id, first, 10, kNowUs);
  // Sent again in a longer run, of which only the rest is new.
  run.line = 1'000'003;
  run.num_lines = 7;
  const std::vector<StoredLine> second{run, {1'000'004, "{}"}};
  store_->append_lines(id, second, 20, kNowUs);
  StoredLine gap{1'000'009, ""};
  gap.num_lines = 4;  // from 1,000,006 on
  EXPECT_THROW(store_->append_lines(id, {&gap, 1}, 30, kNowUs), std::invalid_argument);
  EXPECT_TRUE(store_->seal(id, "hash", kNowS));
  open();
  const Job job = *store_->job(id);
  EXPECT_EQ(job.state.total_lines, 1'000'004u);
  EXPECT_EQ(job.state.request_lines, 2u);
  const std::vector<StoredLine> lines = store_->read_lines(id, 1, 100, 1 << 20);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[1].first_line(), 2u);
  EXPECT_EQ(lines[2].first_line(), 1'000'001u);
  EXPECT_TRUE(lines[1].is_blank() && lines[2].is_blank());
  EXPECT_EQ(lines[3].line, 1'000'004u);
  // From within a run it is the run that comes.
  EXPECT_EQ(store_->read_lines(id, 500, 1, 1 << 20).at(0).line, 1'000'000u);
  EXPECT_FALSE(store_->result({id, 500}).has_value());
  expect_sound();
  store_->end_job(id, "batch_cancelled", kNowS);
  const std::vector<LineResult> ended = read_all(id, ResultOrder::kInput);
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_EQ(ended[1].key.line, 1'000'004u);
  store_->rebuild();
  EXPECT_EQ(store_->job(id)->state.total_lines, 1'000'004u);
  EXPECT_EQ(store_->job(id)->state.request_lines, 2u);
  expect_sound();
}

TEST_F(JobStoreTest, AnUploadWithoutRequestsLeavesNothing) {
  JobRequest request;
  request.idempotency_key = "empty";
  const JobId id = new_job(request);
  const std::vector<StoredLine> blank{{1, ""}, {2, " \r"}};
  store_->append_lines(id, blank, 4, kNowUs);
  EXPECT_FALSE(store_->seal(id, "hash", kNowS));
  EXPECT_FALSE(store_->job(id));
  EXPECT_FALSE(store_->open_job(request, kNowMs).existed);
  EXPECT_EQ(store_->check().lines, 0u);
  expect_sound();
}

TEST_F(JobStoreTest, ASealedUploadTakesNoMoreLines) {
  const JobId id = sealed_job(3);
  store_->append_lines(id, make_lines(4, 5), 500, kNowUs);
  EXPECT_EQ(store_->job(id)->state.total_lines, 3u);
  EXPECT_EQ(store_->job(id)->state.content_hash, "hash");
}

TEST_F(JobStoreTest, ATruncatedUploadRunsItsLinesThenFails) {
  const JobId id = new_job();
  store_->append_lines(id, make_lines(1, 2), 100, kNowUs);
  store_->truncate(id, "truncated_input", "the upload broke off", kNowS);
  EXPECT_EQ(store_->job(id)->status(), "validating");
  prepare(id, 1, 2);
  ASSERT_TRUE(finish(id, 1));
  ASSERT_TRUE(finish(id, 2));
  EXPECT_EQ(store_->end_finished_jobs(kNowS), std::vector<JobId>{id});
  const Job job = *store_->job(id);
  EXPECT_EQ(job.status(), "failed");
  EXPECT_EQ(job.state.end_code, "truncated_input");
  EXPECT_EQ(job.counters.completed, 2u);
}

TEST_F(JobStoreTest, ReadOnlySeesAllAndWritesNothing) {
  const JobId id = prepared_job(4);
  ASSERT_TRUE(finish(id, 2));
  open(JobStore::Mode::kReadOnly);
  EXPECT_EQ(store_->job(id)->counters.completed, 1u);
  EXPECT_EQ(read_all(id, ResultOrder::kInput).size(), 1u);
  EXPECT_EQ(error_kind([&] { store_->set_paused(id, true); }), StorageError::Kind::kIo);
  expect_sound();
}

TEST_F(JobStoreTest, AJobThatIsNotThereIsMissing) {
  EXPECT_EQ(error_kind([&] { store_->set_paused(JobId{}, true); }), StorageError::Kind::kMissing);
  EXPECT_EQ(error_kind([&] { store_->append_lines(JobId{}, {}, 0, kNowUs); }),
            StorageError::Kind::kMissing);
  EXPECT_EQ(error_kind([&] { store_->read_results(JobId{}, ResultOrder::kInput, 0, 1, 1); }),
            StorageError::Kind::kMissing);
}

}  // namespace
}  // namespace batchmill
