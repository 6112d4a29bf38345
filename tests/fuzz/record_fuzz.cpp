// The store's records and keys: the first byte says of which kind, the rest are its bytes. What can
// be read is written as the same bytes.
#include "storage/error.h"
#include "storage/keys.h"
#include "storage/money.h"
#include "storage/record_codec.h"
#include "tests/fuzz/fuzz_target.h"

namespace batchmill::fuzz {
namespace {

constexpr codec::Place kPlace = {"family", "key"};

void check_plan_entry(std::string_view input) {
  // A key's length, the key, the value.
  if (input.size() < 2) return;
  const std::size_t key_size = std::min<std::size_t>(
      static_cast<unsigned char>(input[0]) << 8 | static_cast<unsigned char>(input[1]),
      input.size() - 2);
  const std::string_view key = input.substr(2, key_size);
  const std::string_view value = input.substr(2 + key_size);
  accepts<StorageError>([&] {
    const PlanItem item = codec::decode_plan_item({"plan", key}, value);
    const PlanEntry entry = codec::decode_plan_entry({"plan", key}, value);
    require(item.line == entry.key, "a plan entry has two lines");
    require(codec::encode_plan_entry(entry, item.serial) == value, "a plan entry changes");
    std::uint64_t num_tokens = 0;
    for (const auto& prompt : entry.prompts) num_tokens += prompt.size();
    require(num_tokens == item.num_prompt_tokens, "a plan entry counts other tokens");
  });
}

void check_keys(std::string_view bytes) {
  if (const auto key = keys::parse_line_key(bytes)) {
    require(keys::line_key(*key) == bytes, "a line's key changes");
  }
  if (const auto key = keys::parse_ledger_key(bytes)) {
    require(keys::ledger_key(*key) == bytes, "a ledger key changes");
  }
  if (const auto parts = parse_plan_key(bytes)) {
    require(plan_level_of(bytes).has_value(), "a plan key has no level");
    PlanEntry entry;
    entry.key = parts->line;
    entry.fingerprint = parts->fingerprint;
    entry.priority = parts->priority;
    entry.short_lane = parts->short_lane;
    entry.prompts = {parts->ids};
    // Behind 1,024 ids a key holds hashes of ids that it does not hold.
    if (parts->ids.size() < 1024) require(make_plan_key(entry) == bytes, "a plan key changes");
    require(common_prefix_tokens(std::string(bytes), std::string(bytes)) >= parts->ids.size(),
            "a key does not share its prefix with itself");
  }
  const std::string behind = keys::behind(bytes);
  require(behind.empty() || behind > bytes, "a limit does not lie behind");
  if (const auto id = JobId::parse(bytes)) {
    require(JobId::parse(id->to_string()) == id, "a job's id changes");
  }
}

void check_record(unsigned kind, std::string_view bytes) {
  switch (kind) {
    case 0:
      return require(codec::encode_number(codec::decode_number(kPlace, bytes)) == bytes,
                     "a number changes");
    case 1:
      return require(codec::encode_request(codec::decode_request(kPlace, bytes)) == bytes,
                     "a request changes");
    case 2: {
      JobState state;
      codec::decode_upload(kPlace, bytes, state);
      return require(codec::encode_upload(state) == bytes, "an upload changes");
    }
    case 3: {
      JobState state;
      codec::decode_progress(kPlace, bytes, state);
      return require(codec::encode_progress(state) == bytes, "a job's progress changes");
    }
    case 4: {
      const StoredLine line = codec::decode_line(kPlace, bytes, 7);
      line.is_blank();
      const std::string head = codec::encode_line_head(line, line.queued_us);
      return require((line.num_lines > 1 ? head : head + line.bytes) == bytes, "a line changes");
    }
    case 5: {
      std::uint64_t sequence = 0;
      const LineResult result = codec::decode_result(kPlace, bytes, LineKey(), &sequence);
      return require(codec::encode_result(result, sequence) == bytes, "a result changes");
    }
    case 6:
      return require(codec::encode_counters(codec::decode_counters(kPlace, bytes)) == bytes,
                     "counters change");
    case 7: {
      const LedgerRow row = codec::decode_ledger(kPlace, bytes);
      format_picos(row.cost_prompt);
      return require(codec::encode_ledger(row) == bytes, "a ledger row changes");
    }
    case 8: {
      std::vector<Picos> numbers;
      if (!codec::try_decode_sums(bytes, numbers)) return;
      for (const Picos number : numbers) format_picos(number);
      return require(codec::encode_sums(numbers) == bytes, "sums change");
    }
    default:
      return check_keys(bytes);
  }
}

}  // namespace

void run(std::string_view input) {
  if (input.empty()) return;
  const unsigned kind = static_cast<unsigned char>(input.front()) % 11;
  if (kind == 10) return check_plan_entry(input.substr(1));
  accepts<StorageError>([&] { check_record(kind, input.substr(1)); });
}

}  // namespace batchmill::fuzz
