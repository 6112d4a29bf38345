#include "actors/batch_object.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "actors/queries.h"
#include "queue/json_reader.h"
#include "storage/money.h"

namespace batchmill {
namespace {

double seconds(std::uint64_t time_us) { return static_cast<double>(time_us) / 1e6; }

Json time_or_null(std::int64_t time_s) { return time_s == 0 ? Json() : Json(time_s); }

Json errors_json(const JobState& state) {
  Json data = Json::array();
  for (const JobState::JobError& error : state.errors) {
    data.push_back({{"code", shortened(error.code)},
                    {"message", shortened(error.message)},
                    {"param", nullptr},
                    {"line", error.line == 0 ? Json() : Json(error.line)}});
  }
  if (data.empty() && state.failed_at_s != 0 && !state.end_code.empty()) {
    data.push_back({{"code", shortened(state.end_code)},
                    {"message", shortened(state.end_message)},
                    {"param", nullptr},
                    {"line", nullptr}});
  }
  if (data.empty()) return nullptr;
  return {{"object", "list"}, {"data", std::move(data)}};
}

// Tokens that devices computed per second, so none from the prefix cache: measured now, or the mean
// over the time in which a job that has ended ran.
double tokens_per_second(const Job& job, const LiveJob* live, std::int64_t ran_us) {
  if (!job.ended()) return live != nullptr ? live->tokens_per_second : 0.0;
  if (ran_us <= 0) return 0.0;
  const LineUsage& usage = job.counters.usage;
  return static_cast<double>(usage.prompt_computed_tokens + usage.recomputed_tokens +
                             usage.completion_tokens) /
         seconds(static_cast<std::uint64_t>(ran_us));
}

// What the job's lines could and did save by sharing among themselves. Hits on what other jobs left
// in the cache can go beyond that; they show in usage.
Json prefix_json(const Job& job) {
  std::uint64_t achieved = job.counters.usage.prompt_cached_tokens;
  Json possible = nullptr;
  Json ratio = nullptr;
  if (job.state.prefix_trie_tokens != 0) {
    const std::uint64_t tokens =
        job.state.prefix_prompt_tokens -
        std::min(job.state.prefix_prompt_tokens, job.state.prefix_trie_tokens);
    possible = tokens;
    achieved = std::min(achieved, tokens);
    if (tokens != 0) ratio = static_cast<double>(achieved) / static_cast<double>(tokens);
  }
  return {{"possible_tokens", possible}, {"achieved_tokens", achieved}, {"ratio", ratio}};
}

Json extension_json(const Job& job, const JobCost& cost, std::int64_t ran_us, const LiveJob* live) {
  const std::uint64_t open = lines_without_outcome(job);
  const std::uint64_t running =
      job.ended() || live == nullptr ? 0 : std::min(open, live->lines_running);
  Json eta = nullptr;
  if (job.ended()) {
    eta = 0;
  } else if (live != nullptr && live->lines_per_second > 0.0) {
    eta = static_cast<std::int64_t>(static_cast<double>(open) / live->lines_per_second + 0.5);
  }
  std::vector<std::string> warnings = job.state.warnings;
  if (live != nullptr && !job.ended()) {
    warnings.insert(warnings.end(), live->warnings.begin(), live->warnings.end());
  }
  return {
      {"name", job.request.name.empty() ? Json() : Json(job.request.name)},
      {"owner", job.request.owner.empty() ? Json() : Json(job.request.owner)},
      {"priority", job.request.priority},
      {"paused", job.state.paused},
      {"lines_pending", open - running},
      {"lines_running", running},
      {"tokens_per_second", tokens_per_second(job, live, ran_us)},
      {"eta_seconds", eta},
      {"prefix", prefix_json(job)},
      {"preemptions", job.counters.usage.preemptions},
      {"cost", cost.several_currencies ? Json() : Json(format_picos(cost.total))},
      {"currency", cost.several_currencies || cost.currency.empty() ? Json() : Json(cost.currency)},
      {"warnings", std::move(warnings)}};
}

}  // namespace

std::uint64_t lines_without_outcome(const Job& job) {
  if (job.ended()) return 0;
  const std::uint64_t decided = job.counters.completed + job.counters.failed;
  return job.state.request_lines - std::min(job.state.request_lines, decided);
}

Json utc_time_json(std::int64_t time_us) {
  if (time_us == 0) return nullptr;
  const std::time_t time_s = time_us / 1'000'000;
  std::tm utc{};
  ::gmtime_r(&time_s, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z", utc.tm_year + 1900,
                     utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                     time_us % 1'000'000);
}

std::string shortened(std::string_view text) {
  constexpr std::size_t kMaxBytes = 300;
  const std::string_view kept = utf8_prefix(text, kMaxBytes);
  return kept.size() == text.size() ? std::string(text) : std::string(kept) + "…";
}

Json batch_object_json(const Job& job, const std::string& endpoint, const JobCost& cost,
                       std::int64_t ran_us, const LiveJob* live) {
  const std::string id = job.id.to_string();
  const std::string suffix = id.substr(id.find('_') + 1);
  const JobState& state = job.state;
  const JobCounters& counters = job.counters;
  const LineUsage& usage = counters.usage;
  const bool ended = job.ended();

  Json object;
  object["id"] = id;
  object["object"] = "batch";
  object["endpoint"] = endpoint.empty() ? Json() : Json(endpoint);
  object["errors"] = errors_json(state);
  object["input_file_id"] = "file-" + suffix + "-input";
  object["completion_window"] =
      job.request.deadline_s == 0 ? Json() : Json(fmt::format("{}s", job.request.deadline_s));
  object["status"] = std::string(job.status());
  object["output_file_id"] =
      ended && counters.completed != 0 ? Json("file-" + suffix + "-output") : Json();
  object["error_file_id"] =
      ended && counters.failed != 0 ? Json("file-" + suffix + "-errors") : Json();
  object["created_at"] = state.created_at_s;
  object["in_progress_at"] = time_or_null(state.in_progress_at_s);
  object["expires_at"] =
      job.request.deadline_s == 0 ? Json() : Json(state.created_at_s + job.request.deadline_s);
  object["finalizing_at"] = time_or_null(state.finalizing_at_s);
  object["completed_at"] = time_or_null(state.completed_at_s);
  object["failed_at"] = time_or_null(state.failed_at_s);
  object["expired_at"] = time_or_null(state.expired_at_s);
  object["cancelling_at"] = time_or_null(state.cancelling_at_s);
  object["cancelled_at"] = time_or_null(state.cancelled_at_s);
  object["request_counts"] = {{"total", state.request_lines},
                              {"completed", counters.completed},
                              {"failed", counters.failed}};
  object["usage"] = {{"input_tokens", usage.prompt_tokens},
                     {"input_tokens_details", {{"cached_tokens", usage.prompt_cached_tokens}}},
                     {"output_tokens", usage.completion_tokens},
                     {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
  object["metadata"] = Json::object();
  for (const auto& [key, value] : job.request.metadata) object["metadata"][key] = value;
  object["batchmill"] = extension_json(job, cost, ran_us, live);
  return object;
}

Json ledger_object_json(const LedgerRow& row, LedgerBy by,
                        const std::optional<std::string>& custom_id) {
  const LineUsage& usage = row.usage;
  Json object;
  const bool has_job = row.job != JobId{};
  object["job"] = has_job ? Json(row.job.to_string()) : Json();
  object["model"] = row.model.empty() ? Json() : Json(row.model);
  if (by == LedgerBy::kLine) {
    object["custom_id"] = custom_id ? Json(*custom_id) : Json();
    object["line"] = row.line;
  }
  if (by == LedgerBy::kDay) object["day"] = row.day;
  object["currency"] = row.currency.empty() ? Json() : Json(row.currency);
  object["price_version"] = row.price_version.empty() ? Json() : Json(row.price_version);
  object["lines"] = {{"completed", row.completed}, {"failed", row.failed}};
  object["tokens"] = {{"prompt", usage.prompt_tokens},
                      {"prompt_cached", usage.prompt_cached_tokens},
                      {"prompt_computed", usage.prompt_computed_tokens},
                      {"recomputed", usage.recomputed_tokens},
                      {"completion", usage.completion_tokens}};
  object["device_seconds"] = {{"prefill", seconds(usage.prefill_us)},
                              {"decode", seconds(usage.decode_us)}};
  object["cost"] = {
      {"prompt", format_picos(row.cost_prompt)},
      {"prompt_cached", format_picos(row.cost_prompt_cached)},
      {"completion", format_picos(row.cost_completion)},
      {"total", format_picos(row.cost_prompt + row.cost_prompt_cached + row.cost_completion)}};
  return object;
}

}  // namespace batchmill
