// The values that the store keeps, as plain structs. Their byte formats are in storage/README.md.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace batchmill {

// 128 bits, time-sortable: 48 bits of milliseconds, then 80 bits that never repeat. Its text is
// "batch_" and 26 characters of Crockford's base 32.
struct JobId {
  std::array<std::uint8_t, 16> bytes{};

  std::string to_string() const;
  static std::optional<JobId> parse(std::string_view text);
  auto operator<=>(const JobId&) const = default;
};

// A line of a job: 1-based, as in the file (blank lines count).
struct LineKey {
  JobId job;
  std::uint64_t line = 0;
  auto operator<=>(const LineKey&) const = default;
};

// Money in 10^-12 units of the price's currency; never rounded.
__extension__ using Picos = __int128;

// What a model's tokens cost: integers of 10^-6 units per 1,000,000 tokens, so one token costs that
// many picos. `version` names the price list.
struct Price {
  std::string version;
  std::string currency = "USD";
  std::int64_t input = 0;
  std::int64_t cached_input = 0;
  std::int64_t output = 0;
};

// What one line used. Always prompt = prompt_cached + prompt_computed; recomputed is not billed.
struct LineUsage {
  std::uint64_t prompt_tokens = 0;
  std::uint64_t prompt_cached_tokens = 0;
  std::uint64_t prompt_computed_tokens = 0;
  std::uint64_t recomputed_tokens = 0;
  std::uint64_t completion_tokens = 0;
  std::uint64_t prefill_us = 0;
  std::uint64_t decode_us = 0;
  std::uint64_t preemptions = 0;
};

// The life of a line, wall-clock microseconds since 1970 (0: has not happened).
struct LineTimes {
  std::int64_t queued_us = 0;  // durable
  std::int64_t admitted_us = 0;  // given to a device
  std::int64_t first_token_us = 0;
  std::int64_t finished_us = 0;
};

enum class LineOutcome : std::uint8_t { kCompleted = 1, kFailed = 2 };  // on disk: do not renumber

// The end of one line: written once, together with its metrics, counters and ledger, while its plan
// entry goes. `output` is the finished output line (JSON, no newline).
struct LineResult {
  LineKey key;
  std::uint32_t attempt = 0;  // 0: decided while preparing, no device ran it
  LineOutcome outcome = LineOutcome::kFailed;
  std::string custom_id;  // empty when the line could not be read
  bool has_custom_id = false;
  std::string error_code;  // empty when completed
  std::string output;
  std::string model;  // configured model name; empty if none was found
  std::string device;  // "cpu:0"
  LineUsage usage;
  LineTimes times;
  Price price;  // what it was billed with
};

// What a user asked for when the job was made. Never changes.
struct JobRequest {
  std::string name;
  std::int32_t priority = 0;  // −10 … 10
  bool strict = false;
  std::int64_t deadline_s = 0;  // seconds after creation; 0: none
  std::string idempotency_key;  // empty: none
  std::string content_hash;  // as the client states it; checked when the upload ends; may be empty
  std::string model_fingerprint;  // part of the identity with `run`; may be empty
  std::map<std::string, std::string> metadata;
};

enum class UploadState : std::uint8_t { kOpen = 1, kSealed = 2, kTruncated = 3 };  // on disk

// Durable facts about a job besides its counters. Times: unix seconds, 0: has not happened.
struct JobState {
  UploadState upload = UploadState::kOpen;
  std::uint64_t total_lines = 0;  // lines stored so far; final once sealed
  std::uint64_t request_lines = 0;  // of these, not blank
  std::uint64_t upload_offset_bytes = 0;  // of the content, durable
  std::string content_hash;  // of the whole content, once sealed
  std::uint64_t prepared_through = 0;  // lines 1 … this have a plan entry, a result or are blank
  bool paused = false;
  bool strict_checked = false;  // a strict job whose lines all passed
  std::int64_t created_at_s = 0;
  std::int64_t in_progress_at_s = 0;
  std::int64_t finalizing_at_s = 0;
  std::int64_t completed_at_s = 0;
  std::int64_t failed_at_s = 0;
  std::int64_t expired_at_s = 0;
  std::int64_t cancelling_at_s = 0;
  std::int64_t cancelled_at_s = 0;
  std::string end_code;  // "" | "batch_cancelled" | "batch_expired" | "truncated_input" | …
  std::string end_message;
  struct JobError {
    std::string code;
    std::string message;
    std::uint64_t line = 0;  // 0: none
  };
  std::vector<JobError> errors;  // errors.data of a strict or broken job, at most 100
  std::vector<std::string> warnings;  // at most 20
  std::uint64_t prefix_prompt_tokens = 0;  // Σ prompt tokens of prepared lines
  std::uint64_t prefix_trie_tokens =
      0;  // trie nodes + repeated prompts' last tokens; 0: not yet known
};

// Sums over a job's results, kept by a merge operator.
struct JobCounters {
  std::uint64_t completed = 0;
  std::uint64_t failed = 0;
  LineUsage usage;
  std::uint64_t result_bytes = 0;
};

struct Job {
  JobId id;
  JobRequest request;
  JobState state;
  JobCounters counters;

  // OpenAI's state name: "validating", "failed", "in_progress", "finalizing", "completed",
  // "expired", "cancelling", "cancelled".
  std::string_view status() const;
  bool ended() const;
};

// A line as it was uploaded, without its newline.
struct StoredLine {
  std::uint64_t line = 0;
  std::string bytes;
  bool too_long = false;  // bytes hold only its beginning
};

// A line ready to run: one per line, keyed in the plan by the first prompt's ids.
struct PlanEntry {
  LineKey key;
  std::string model;  // configured model name
  std::string fingerprint;  // 16 hex digits
  std::int32_t priority = 0;
  bool short_lane = false;
  std::vector<std::vector<std::int32_t>> prompts;  // token ids, at least one prompt
  std::uint32_t num_choices = 1;  // prompts × n
  std::uint32_t max_tokens = 0;  // per choice
  std::string request;  // what the device worker runs, in the codec of actors/
};

// Sums of the ledger for one job and model (or line, or day).
struct LedgerRow {
  JobId job;
  std::string model;
  std::string currency;
  std::string price_version;
  std::uint64_t line = 0;  // by line only
  std::string custom_id;  // by line only
  std::string day;  // by day only, YYYY-MM-DD (UTC)
  std::uint64_t completed = 0;
  std::uint64_t failed = 0;
  LineUsage usage;
  Picos cost_prompt = 0;
  Picos cost_prompt_cached = 0;
  Picos cost_completion = 0;
};

enum class LedgerBy : std::uint8_t { kJob, kLine, kModel, kDay };

}  // namespace batchmill
