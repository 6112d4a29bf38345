// Sums of tokens, device time and money, as `costs` shows them. Plain values.
#pragma once

#include <cstdint>
#include <string>

#include "storage/job_id.h"
#include "storage/line.h"
#include "storage/money.h"

namespace batchmill {

enum class LedgerBy : std::uint8_t { kJob, kLine, kModel, kDay };

// One row. Always job = sum of its lines = sum of its days.
struct LedgerRow {
  JobId job;  // all zero in rows over all jobs by model or day
  std::string model;  // by day: only when the day had a single one
  std::string currency;  // empty when nothing was billed
  std::string price_version;  // several within one row: joined by ","
  std::uint64_t line = 0;  // by line only
  std::string custom_id;  // by line only
  std::string day;  // by day only, YYYY-MM-DD (UTC)
  std::uint64_t completed = 0;
  std::uint64_t failed = 0;
  LineUsage usage;
  Picos cost_prompt = 0;
  Picos cost_prompt_cached = 0;
  Picos cost_completion = 0;
  // By line only: the stored line, when it ended with its job and the store does not know its id.
  std::string input;

  Picos cost_total() const { return cost_prompt + cost_prompt_cached + cost_completion; }
  // Adds counts, usage and costs; leaves the names.
  void add(const LedgerRow& other);
  bool operator==(const LedgerRow&) const = default;
};

LedgerRow ledger_of(const LineResult& result);  // what a result adds
std::uint32_t day_of(std::int64_t seconds);  // UTC day number of a wall-clock second
std::string day_text(std::uint32_t day);  // YYYY-MM-DD

}  // namespace batchmill
