#include "tests/actors/job_audit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "storage/database.h"
#include "storage/job_store.h"

namespace batchmill::testing {
namespace {

using Contents = std::vector<std::pair<std::string, std::string>>;

std::uint64_t sum(const std::vector<Json>& rows, const char* path) {
  const Json::json_pointer pointer(path);
  std::uint64_t total = 0;
  for (const Json& row : rows) total += row.at(pointer).get<std::uint64_t>();
  return total;
}

// Money in 10⁻¹² units, from its decimal string.
std::uint64_t picos(const Json& row, const char* part) {
  std::string text = row["cost"][part].get<std::string>();
  const std::size_t point = std::min(text.find('.'), text.size());
  const std::size_t decimals = text.size() - std::min(text.size(), point + 1);
  EXPECT_LE(decimals, 12u);
  if (point < text.size()) text.erase(point, 1);
  return std::stoull(text + std::string(12 - decimals, '0'));
}

Contents contents(const std::string& store_path, Family family) {
  Contents out;
  const Database database(store_path, {}, true, nullptr);
  for (Database::Cursor cursor(database, family, {}, {}); cursor.valid(); cursor.next()) {
    out.emplace_back(cursor.key(), cursor.value());
  }
  return out;
}

std::vector<Job> jobs_of(const std::string& store_path) {
  return JobStore::open(store_path, {}, JobStore::Mode::kReadOnly)->list(std::nullopt, 1000, "");
}

}  // namespace

void expect_exact(TestClient& client, const std::string& job, std::size_t num_lines,
                  std::size_t num_failed) {
  const Json batch = client.batch(job);
  EXPECT_EQ(batch["status"], "completed");
  EXPECT_EQ(
      batch["request_counts"],
      Json({{"total", num_lines}, {"completed", num_lines - num_failed}, {"failed", num_failed}}));
  std::vector<Json> results = client.results(job);
  std::set<std::string> ids;
  for (const Json& line : results) ids.insert(line["custom_id"].get<std::string>());
  EXPECT_EQ(ids.size(), num_lines);
  EXPECT_EQ(results.size(), num_lines);
  std::erase_if(results, [](const Json& line) { return !line["error"].is_null(); });

  const std::vector<Json> by_job = client.costs(job, "job");
  const std::vector<Json> by_line = client.costs(job, "line");
  EXPECT_EQ(by_line.size(), num_lines);
  for (const char* path :
       {"/lines/completed", "/lines/failed", "/tokens/prompt", "/tokens/prompt_cached",
        "/tokens/prompt_computed", "/tokens/recomputed", "/tokens/completion"}) {
    EXPECT_EQ(sum(by_job, path), sum(by_line, path)) << path;
  }
  for (const char* part : {"prompt", "prompt_cached", "completion", "total"}) {
    std::uint64_t of_job = 0;
    std::uint64_t of_lines = 0;
    for (const Json& row : by_job) of_job += picos(row, part);
    for (const Json& row : by_line) of_lines += picos(row, part);
    EXPECT_EQ(of_job, of_lines) << part;
    EXPECT_GT(of_job, 0u) << part;
  }
  // Billed is what the results say was used, each once.
  EXPECT_EQ(sum(by_job, "/tokens/prompt"), sum(results, "/response/body/usage/prompt_tokens"));
  EXPECT_EQ(sum(by_job, "/tokens/completion"),
            sum(results, "/response/body/usage/completion_tokens"));
  EXPECT_EQ(batch["usage"]["input_tokens"], sum(by_job, "/tokens/prompt"));
  EXPECT_EQ(batch["usage"]["output_tokens"], sum(by_job, "/tokens/completion"));
}

void audit_store(const std::string& store_path) {
  if (!std::filesystem::exists(store_path + "/CURRENT")) return;
  const std::string copy = store_path + ".copy";
  std::filesystem::remove_all(copy);
  std::filesystem::copy(store_path, copy);
  {
    // Opened to write, as a daemon does: what RocksDB recovers is recovered.
    const auto store = JobStore::open(copy, {}, JobStore::Mode::kReadWrite);
    EXPECT_EQ(store->check().problems, std::vector<std::string>());
  }
  const std::vector<Job> jobs = jobs_of(copy);
  const bool all_ended = std::ranges::all_of(jobs, [](const Job& job) { return job.ended(); });
  std::vector<Family> families = {Family::kLines, Family::kResults, Family::kDone, Family::kLedger};
  if (all_ended) {
    // Nothing waits for being prepared again, so everything is comparable.
    families.insert(families.end(), {Family::kIds, Family::kPlan, Family::kPrompts});
  }
  std::map<Family, Contents> before;
  for (const Family family : families) before[family] = contents(copy, family);
  JobStore::open(copy, {}, JobStore::Mode::kReadWrite)->rebuild();
  for (const Family family : families) {
    EXPECT_EQ(contents(copy, family), before[family]) << family_name(family);
  }
  const std::vector<Job> rebuilt = jobs_of(copy);
  ASSERT_EQ(rebuilt.size(), jobs.size());
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (jobs[i].ended()) {
      EXPECT_EQ(rebuilt[i], jobs[i]);
    } else {
      EXPECT_EQ(rebuilt[i].counters, jobs[i].counters);
    }
  }
  EXPECT_EQ(JobStore::open(copy, {}, JobStore::Mode::kReadOnly)->check().problems,
            std::vector<std::string>());
  std::filesystem::remove_all(copy);
}

}  // namespace batchmill::testing
