// The JSON objects that users see: a job as OpenAI's batch object, a ledger row, a line's life.
// Pure functions over the store's values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "queue/wire.h"
#include "storage/job_store.h"

namespace batchmill {

struct LiveJob;

// A text that a client or a template wrote, as it goes into a job's record and its batch object:
// many of those share one header.
std::string shortened(std::string_view text);

// What a job has cost so far.
struct JobCost {
  Picos total = 0;
  std::string currency;  // empty: nothing was billed
  bool several_currencies = false;  // `total` then means nothing
};

// `endpoint`: url of the job's lines, empty if unknown. `ran_us`: of a job that has ended, from the
// first line that a device took to the last one that finished. `live`: null when no daemon runs.
Json batch_object_json(const Job& job, const std::string& endpoint, const JobCost& cost,
                       std::int64_t ran_us, const LiveJob* live);

// One object of the cost ledger. `by` decides which further keys it has; `custom_id` (by line) is
// null when absent.
Json ledger_object_json(const LedgerRow& row, LedgerBy by,
                        const std::optional<std::string>& custom_id);

// Lines of the job that have no outcome yet.
std::uint64_t lines_without_outcome(const Job& job);

// "2026-01-31T12:00:00.123456Z"; null for 0.
Json utc_time_json(std::int64_t time_us);

}  // namespace batchmill
