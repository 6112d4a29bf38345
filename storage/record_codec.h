// The byte formats of the values (storage/README.md): a version byte, then fields of fixed width in
// big-endian order; texts have a 4-byte length before them. Decoding never trusts the bytes: what
// is not exactly a record throws StorageError(kDamaged) naming the column family and key. Pure
// functions, internal to the store.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "storage/ledger.h"
#include "storage/plan.h"
#include "storage/records.h"

namespace batchmill::codec {

// Where a value was found, for the message.
struct Place {
  std::string_view family;
  std::string_view key;
};
[[noreturn]] void throw_damaged(Place place, std::string_view what);

std::string encode_number(std::uint64_t value);
std::uint64_t decode_number(Place place, std::string_view bytes);

std::string encode_request(const JobRequest& request);
JobRequest decode_request(Place place, std::string_view bytes);

// A job's state is two records, because two writers own them: what the upload moves …
std::string encode_upload(const JobState& state);
void decode_upload(Place place, std::string_view bytes, JobState& state);
// … and everything else.
std::string encode_progress(const JobState& state);
void decode_progress(Place place, std::string_view bytes, JobState& state);

// What stands before a line's bytes, or all that is kept of blank lines in a row.
std::string encode_line_head(const StoredLine& line, std::int64_t queued_us);
// The line number is the key's.
StoredLine decode_line(Place place, std::string_view bytes, std::uint64_t line);

std::string encode_plan_entry(const PlanEntry& entry, std::uint64_t serial);
// All of an entry, its key's part included.
PlanEntry decode_plan_entry(Place place, std::string_view bytes);
// Only what a cursor needs; `item.key` is place.key.
PlanItem decode_plan_item(Place place, std::string_view bytes);

std::string encode_result(const LineResult& result, std::uint64_t done_sequence);
// `done_sequence` may be null.
LineResult decode_result(Place place, std::string_view bytes, const LineKey& key,
                         std::uint64_t* done_sequence);

// Values that the merge operator adds: 16 bytes (two's complement) per number.
std::string encode_sums(const std::vector<Picos>& numbers);
// False when the bytes are no sums.
bool try_decode_sums(std::string_view bytes, std::vector<Picos>& numbers);

std::string encode_counters(const JobCounters& counters);
JobCounters decode_counters(Place place, std::string_view bytes);
// Counts, usage and costs only; the names are in the key.
std::string encode_ledger(const LedgerRow& row);
LedgerRow decode_ledger(Place place, std::string_view bytes);

}  // namespace batchmill::codec
