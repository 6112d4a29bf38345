// A line on its way: as uploaded, as planned, as finished. Plain values; their byte formats are in
// storage/README.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "storage/job_id.h"
#include "storage/money.h"

namespace batchmill {

// A line as it was uploaded, without its newline. Blank lines are stored too, so that numbers stay
// those of the file; blank neighbours may share one record.
struct StoredLine {
  std::uint64_t line = 0;
  std::string bytes;
  bool too_long = false;  // bytes hold only its beginning
  std::int64_t queued_us = 0;  // set when read: when it became durable
  std::uint64_t num_lines = 1;  // this one and the ones before it that it stands for, all blank

  std::uint64_t first_line() const { return line - num_lines + 1; }

  // Nothing but white space, maybe behind a byte order mark: counts as a line, not as a request.
  bool is_blank() const;
};

// A line ready to run: one per line, keyed in the plan by the first prompt's ids.
struct PlanEntry {
  LineKey key;
  std::string model;  // configured model name
  std::string fingerprint;  // 16 hex digits
  std::int32_t priority = 0;  // −10 … 10
  bool short_lane = false;
  std::vector<std::vector<std::int32_t>> prompts;  // token ids 0 … 2^24 − 2, at least one prompt
  std::uint32_t num_choices = 1;  // prompts × n
  std::uint32_t max_tokens = 0;  // per choice
  // False if equal beginnings of prompts save nothing with this model. Not stored: it decides what
  // the job's possible saving is measured over.
  bool shares_prefixes = true;
  std::string request;  // what the device worker runs, in the codec of actors/
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

  LineUsage& operator+=(const LineUsage& other);
  bool operator==(const LineUsage&) const = default;
};

// The life of a line, wall-clock microseconds since 1970 (0: has not happened).
struct LineTimes {
  std::int64_t queued_us = 0;  // durable
  std::int64_t admitted_us = 0;  // given to a device
  std::int64_t first_token_us = 0;
  std::int64_t finished_us = 0;
  bool operator==(const LineTimes&) const = default;
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
  LineTimes times;  // queued_us 0: the store looks it up
  Price price;  // what it was billed with

  // Set by read_results and result() only. A line that ended with its job (cancelled, expired …)
  // has no record of its own: `ended_with_job` is true, `error_code` is the job's end code,
  // `output` and `custom_id` are empty, and `input` is the stored line, from which the reader takes
  // the custom_id and renders the failure line.
  bool ended_with_job = false;
  std::string input;
  bool operator==(const LineResult&) const = default;
};

}  // namespace batchmill
