// A store in a fresh directory, and short ways to fill it. One thread.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "storage/job_store.h"
#include "tests/support/temporary_directory.h"

namespace batchmill {

inline constexpr std::int64_t kNowS = 1'700'000'000;  // 2023-11-14
inline constexpr std::int64_t kNowMs = kNowS * 1'000;
inline constexpr std::int64_t kNowUs = kNowMs * 1'000;
inline constexpr const char* kFingerprint = "0123456789abcdef";

inline StorageOptions small_options() {
  StorageOptions options;
  options.block_cache_bytes = 4 << 20;
  options.write_buffer_bytes = 8 << 20;
  return options;
}

inline std::vector<StoredLine> make_lines(std::uint64_t first, std::uint64_t last) {
  std::vector<StoredLine> lines;
  for (std::uint64_t line = first; line <= last; ++line) {
    lines.push_back({line, "{\"line\": " + std::to_string(line) + "}"});
  }
  return lines;
}

inline PlanEntry make_entry(const JobId& job, std::uint64_t line, std::vector<std::int32_t> ids) {
  PlanEntry entry;
  entry.key = {job, line};
  entry.model = "smol";
  entry.fingerprint = kFingerprint;
  entry.prompts.push_back(std::move(ids));
  entry.max_tokens = 16;
  entry.request = "request " + std::to_string(line);
  return entry;
}

inline LineResult make_result(const JobId& job, std::uint64_t line) {
  LineResult result;
  result.key = {job, line};
  result.attempt = 1;
  result.outcome = LineOutcome::kCompleted;
  result.custom_id = "id-" + std::to_string(line);
  result.has_custom_id = true;
  result.output = "{\"answer\": " + std::to_string(line) + "}";
  result.model = "smol";
  result.device = "cpu:0";
  result.usage.prompt_tokens = 100 + line;
  result.usage.prompt_cached_tokens = 60;
  result.usage.prompt_computed_tokens = 40 + line;
  result.usage.completion_tokens = 7 * line;
  result.usage.prefill_us = 11 * line;
  result.usage.decode_us = 13 * line;
  result.times.queued_us = kNowUs;
  result.times.finished_us = kNowUs + static_cast<std::int64_t>(line);
  result.price = {"2024-01", "USD", 150'000, 75'000, 600'000};
  return result;
}

inline LineResult make_failure(const JobId& job, std::uint64_t line, const std::string& code) {
  LineResult result;
  result.key = {job, line};
  result.error_code = code;
  result.output = "{\"error\": \"" + code + "\"}";
  return result;
}

class StoreTest : public ::testing::Test {
 protected:
  StoreTest() { open(); }

  void open(JobStore::Mode mode = JobStore::Mode::kReadWrite) {
    store_.reset();
    store_ = JobStore::open(directory_.path(), small_options(), mode);
  }

  JobId new_job(JobRequest request = {}) { return store_->open_job(request, kNowMs).job.id; }

  // A sealed job with `num_lines` lines.
  JobId sealed_job(std::uint64_t num_lines, JobRequest request = {}) {
    const JobId id = new_job(std::move(request));
    store_->append_lines(id, make_lines(1, num_lines), num_lines * 100, kNowUs);
    EXPECT_TRUE(store_->seal(id, "hash", kNowS));
    return id;
  }

  // All lines planned: line i has the prompt {i % 4, i}.
  JobId prepared_job(std::uint64_t num_lines, JobRequest request = {}) {
    const JobId id = sealed_job(num_lines, std::move(request));
    prepare(id, 1, num_lines);
    return id;
  }

  void prepare(const JobId& id, std::uint64_t first, std::uint64_t last) {
    JobStore::Prepared prepared;
    prepared.first_line = first;
    prepared.last_line = last;
    for (std::uint64_t line = first; line <= last; ++line) {
      const auto number = static_cast<std::int32_t>(line);
      prepared.entries.push_back(make_entry(id, line, {number % 4, number}));
      prepared.custom_ids.emplace_back("id-" + std::to_string(line), line);
    }
    ASSERT_TRUE(store_->commit_prepared(id, std::move(prepared), kNowS));
  }

  std::vector<PlanItem> whole_plan() {
    std::vector<PlanItem> items;
    PlanRange range;
    while (true) {
      PlanPage page = store_->read_plan(range, 100);
      for (PlanItem& item : page.items) items.push_back(std::move(item));
      if (page.at_end) return items;
      range.begin = page.next;
    }
  }

  PlanKey plan_key_of(const JobId& id, std::uint64_t line) {
    const auto number = static_cast<std::int32_t>(line);
    return make_plan_key(make_entry(id, line, {number % 4, number}));
  }

  bool finish(const JobId& id, std::uint64_t line) {
    const LineResult result = make_result(id, line);
    const PlanKey key = plan_key_of(id, line);
    return store_->commit_results({&result, 1}, {&key, 1}, kNowS).front();
  }

  std::vector<LineResult> read_all(const JobId& id, ResultOrder order) {
    std::vector<LineResult> all;
    JobStore::ResultPage page;
    while (!page.at_end) {
      page = store_->read_results(id, order, page.next, 3, 1 << 20);
      for (LineResult& result : page.results) all.push_back(std::move(result));
    }
    return all;
  }

  void expect_sound() {
    const JobStore::CheckReport report = store_->check();
    EXPECT_EQ(report.problems, std::vector<std::string>());
  }

  TemporaryDirectory directory_;
  std::unique_ptr<JobStore> store_;
};

template <typename Action>
std::optional<StorageError::Kind> error_kind(Action action, std::string* message = nullptr) {
  try {
    action();
  } catch (const StorageError& error) {
    if (message != nullptr) *message = error.what();
    return error.kind();
  }
  return std::nullopt;
}

}  // namespace batchmill
