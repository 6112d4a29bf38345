// Keys of the column families: fixed-width big-endian fields, so that byte order is the order of
// the values. Pure functions, internal to the store.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "storage/job_id.h"

namespace batchmill::keys {

void put_u24(std::string& out, std::uint32_t value);
void put_u32(std::string& out, std::uint32_t value);
void put_u64(std::string& out, std::uint64_t value);
std::uint32_t get_u24(const char* at);
std::uint32_t get_u32(const char* at);
std::uint64_t get_u64(const char* at);

inline constexpr std::size_t kJobBytes = 16;
inline constexpr std::size_t kLineKeyBytes = kJobBytes + 8;

// job · u64: lines, results, attempts (a line number) and done (a sequence number).
std::string line_key(const LineKey& key);
std::optional<LineKey> parse_line_key(std::string_view key);

std::string job_prefix(const JobId& id);
JobId get_job(const char* at);
// The first key behind all that begin with `prefix`; empty when there is none.
std::string behind(std::string_view prefix);

// jobs: job · part.
enum class JobPart : char { kCounters = 'c', kRequest = 'r', kState = 's', kUpload = 'u' };
std::string job_key(const JobId& id, JobPart part);

// meta: what there is one of.
inline constexpr std::string_view kSchema = "schema";
inline constexpr std::string_view kClock = "clock";  // the latest time given, µs
inline constexpr std::string_view kSerial = "serial";  // of the newest plan entry
inline constexpr std::string_view kDrain = "drain";  // ended jobs may have plan entries
inline constexpr std::string_view kRebuilding = "rebuilding";
inline constexpr std::string_view kSynced = "synced";  // see log_scan.h

// meta: the job that a user's key names. Each owner has keys of its own; "" is the operator.
std::string idempotency_key(std::string_view owner, std::string_view key);

// ids: job · custom_id.
std::string id_key(const JobId& id, std::string_view custom_id);

// ledger: job · day (days since 1970, 4 bytes) · model, currency, price version (each with a
// 4-byte length before it).
struct LedgerKey {
  JobId job;
  std::uint32_t day = 0;
  std::string model;
  std::string currency;
  std::string price_version;
  auto operator<=>(const LedgerKey&) const = default;
};
std::string ledger_key(const LedgerKey& key);
std::optional<LedgerKey> parse_ledger_key(std::string_view key);

// Up to 32 bytes as hex, for error messages.
std::string hex(std::string_view bytes);

}  // namespace batchmill::keys
