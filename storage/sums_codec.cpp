#include "storage/record_codec.h"
#include "storage/record_reader.h"

namespace batchmill::codec {
namespace {

__extension__ using UnsignedPicos = unsigned __int128;

constexpr std::uint8_t kVersion = 1;
constexpr std::size_t kNumberBytes = 16;
constexpr std::size_t kUsageNumbers = 8;

void append(std::vector<Picos>& numbers, const LineUsage& usage) {
  for (std::uint64_t number :
       {usage.prompt_tokens, usage.prompt_cached_tokens, usage.prompt_computed_tokens,
        usage.recomputed_tokens, usage.completion_tokens, usage.prefill_us, usage.decode_us,
        usage.preemptions}) {
    numbers.push_back(static_cast<Picos>(number));
  }
}

// What is never negative and fits 64 bits.
std::uint64_t take_count(Place place, Picos number) {
  if (number < 0 || number > static_cast<Picos>(UINT64_MAX)) {
    throw_damaged(place, "a count is out of range");
  }
  return static_cast<std::uint64_t>(number);
}

// `at`: the first of the eight numbers.
LineUsage take_usage(Place place, const Picos* at) {
  LineUsage usage;
  usage.prompt_tokens = take_count(place, at[0]);
  usage.prompt_cached_tokens = take_count(place, at[1]);
  usage.prompt_computed_tokens = take_count(place, at[2]);
  usage.recomputed_tokens = take_count(place, at[3]);
  usage.completion_tokens = take_count(place, at[4]);
  usage.prefill_us = take_count(place, at[5]);
  usage.decode_us = take_count(place, at[6]);
  usage.preemptions = take_count(place, at[7]);
  return usage;
}

std::vector<Picos> decode_sums(Place place, std::string_view bytes, std::size_t size) {
  std::vector<Picos> numbers;
  if (!try_decode_sums(bytes, numbers) || numbers.size() != size) {
    throw_damaged(place, "no sums of the expected length");
  }
  return numbers;
}

}  // namespace

std::string encode_sums(const std::vector<Picos>& numbers) {
  RecordWriter out(kVersion);
  for (Picos number : numbers) {
    const auto bits = static_cast<UnsignedPicos>(number);
    out.u64(static_cast<std::uint64_t>(bits >> 64));
    out.u64(static_cast<std::uint64_t>(bits));
  }
  return out.take();
}

bool try_decode_sums(std::string_view bytes, std::vector<Picos>& numbers) {
  if (bytes.empty() || static_cast<std::uint8_t>(bytes[0]) != kVersion ||
      (bytes.size() - 1) % kNumberBytes != 0) {
    return false;
  }
  numbers.clear();
  for (std::size_t at = 1; at < bytes.size(); at += kNumberBytes) {
    const UnsignedPicos high = keys::get_u64(bytes.data() + at);
    numbers.push_back(static_cast<Picos>(high << 64 | keys::get_u64(bytes.data() + at + 8)));
  }
  return true;
}

std::string encode_counters(const JobCounters& counters) {
  std::vector<Picos> numbers{static_cast<Picos>(counters.completed),
                             static_cast<Picos>(counters.failed)};
  append(numbers, counters.usage);
  numbers.push_back(static_cast<Picos>(counters.result_bytes));
  return encode_sums(numbers);
}

JobCounters decode_counters(Place place, std::string_view bytes) {
  const std::vector<Picos> numbers = decode_sums(place, bytes, 2 + kUsageNumbers + 1);
  JobCounters counters;
  counters.completed = take_count(place, numbers[0]);
  counters.failed = take_count(place, numbers[1]);
  counters.usage = take_usage(place, &numbers[2]);
  counters.result_bytes = take_count(place, numbers[2 + kUsageNumbers]);
  return counters;
}

std::string encode_ledger(const LedgerRow& row) {
  std::vector<Picos> numbers{static_cast<Picos>(row.completed), static_cast<Picos>(row.failed)};
  append(numbers, row.usage);
  numbers.push_back(row.cost_prompt);
  numbers.push_back(row.cost_prompt_cached);
  numbers.push_back(row.cost_completion);
  return encode_sums(numbers);
}

LedgerRow decode_ledger(Place place, std::string_view bytes) {
  const std::vector<Picos> numbers = decode_sums(place, bytes, 2 + kUsageNumbers + 3);
  LedgerRow row;
  row.completed = take_count(place, numbers[0]);
  row.failed = take_count(place, numbers[1]);
  row.usage = take_usage(place, &numbers[2]);
  row.cost_prompt = numbers[2 + kUsageNumbers];
  row.cost_prompt_cached = numbers[3 + kUsageNumbers];
  row.cost_completion = numbers[4 + kUsageNumbers];
  return row;
}

}  // namespace batchmill::codec
