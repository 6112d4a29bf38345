// A job: what was asked for, what is durable about it, what it used. Plain values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "storage/job_id.h"
#include "storage/line.h"

namespace batchmill {

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
  std::string owner;  // public key of the client that made it; empty: the operator did
  bool operator==(const JobRequest&) const = default;
};

// What a job that is there already keeps, although it is asked for otherwise now: of what changes
// no result ("name", "priority", …).
std::vector<std::string> kept_options(const JobRequest& first, const JobRequest& now);

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
    bool operator==(const JobError&) const = default;
  };
  std::vector<JobError> errors;  // errors.data of a strict or broken job, at most 100
  std::vector<std::string> warnings;  // at most 20
  std::uint64_t prefix_prompt_tokens = 0;  // Σ prompt tokens of prepared lines
  // Trie nodes + repeated prompts' last tokens; 0: not yet known.
  std::uint64_t prefix_trie_tokens = 0;
  std::int64_t end_time_s() const;  // when the job ended, however it did; 0 before
  bool operator==(const JobState&) const = default;
};

// Sums over a job's results, kept by a merge operator. For an ended job `failed` also counts the
// lines that ended with it.
struct JobCounters {
  std::uint64_t completed = 0;
  std::uint64_t failed = 0;
  LineUsage usage;
  std::uint64_t result_bytes = 0;
  void add(const LineResult& result);
  bool operator==(const JobCounters&) const = default;
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
  bool operator==(const Job&) const = default;
};

}  // namespace batchmill
