#include "storage/record_codec.h"

#include "storage/error.h"
#include "storage/record_reader.h"

namespace batchmill::codec {
namespace {

// What a line's record holds where others say whether it is too long: blank lines in a row.
constexpr std::uint8_t kBlankRun = 2;

constexpr std::uint8_t kVersion = 1;  // of every record below
constexpr std::size_t kKeyIds = 1024;  // of the first prompt's ids, so many are in the plan's key
constexpr std::uint8_t kRequestWithOwner = 2;  // a request that a client with a key made

void write_usage(RecordWriter& out, const LineUsage& usage) {
  out.u64(usage.prompt_tokens);
  out.u64(usage.prompt_cached_tokens);
  out.u64(usage.prompt_computed_tokens);
  out.u64(usage.recomputed_tokens);
  out.u64(usage.completion_tokens);
  out.u64(usage.prefill_us);
  out.u64(usage.decode_us);
  out.u64(usage.preemptions);
}

LineUsage read_usage(RecordReader& in) {
  LineUsage usage;
  usage.prompt_tokens = in.u64();
  usage.prompt_cached_tokens = in.u64();
  usage.prompt_computed_tokens = in.u64();
  usage.recomputed_tokens = in.u64();
  usage.completion_tokens = in.u64();
  usage.prefill_us = in.u64();
  usage.decode_us = in.u64();
  usage.preemptions = in.u64();
  return usage;
}

// The part of a plan entry that a cursor reads; the rest follows it.
PlanItem read_plan_head(RecordReader& in, Place place) {
  PlanItem item;
  item.key = std::string(place.key);
  item.serial = in.u64();
  item.num_prompt_tokens = in.u32();
  item.num_choices = in.u32();
  item.max_tokens = in.u32();
  item.model = in.string();
  return item;
}

}  // namespace

void throw_damaged(Place place, std::string_view what) {
  std::string message = "the store is damaged: column family ";
  message += place.family;
  message += ", key ";
  message += keys::hex(place.key);
  message += ": ";
  message += what;
  throw StorageError(StorageError::Kind::kDamaged, message);
}

std::string encode_number(std::uint64_t value) {
  RecordWriter out(kVersion);
  out.u64(value);
  return out.take();
}

std::uint64_t decode_number(Place place, std::string_view bytes) {
  RecordReader in(place, bytes, kVersion);
  const std::uint64_t value = in.u64();
  in.end();
  return value;
}

std::string encode_request(const JobRequest& request) {
  RecordWriter out(request.owner.empty() ? kVersion : kRequestWithOwner);
  out.text(request.name);
  out.i32(request.priority);
  out.boolean(request.strict);
  out.i64(request.deadline_s);
  out.text(request.idempotency_key);
  out.text(request.content_hash);
  out.text(request.model_fingerprint);
  out.u32(static_cast<std::uint32_t>(request.metadata.size()));
  for (const auto& [key, value] : request.metadata) {
    out.text(key);
    out.text(value);
  }
  if (!request.owner.empty()) out.text(request.owner);
  return out.take();
}

JobRequest decode_request(Place place, std::string_view bytes) {
  RecordReader in(place, bytes, kRequestWithOwner);
  JobRequest request;
  request.name = in.string();
  request.priority = in.i32();
  request.strict = in.boolean();
  request.deadline_s = in.i64();
  request.idempotency_key = in.string();
  request.content_hash = in.string();
  request.model_fingerprint = in.string();
  for (std::uint32_t i = in.count(8); i > 0; --i) {
    std::string key = in.string();
    if (!request.metadata.empty() && key <= request.metadata.rbegin()->first) {
      in.fail("metadata are not in order");
    }
    request.metadata[std::move(key)] = in.string();
  }
  if (in.version() == kRequestWithOwner) {
    request.owner = in.string();
    if (request.owner.empty()) in.fail("an owner without a name");
  }
  in.end();
  return request;
}

std::string encode_upload(const JobState& state) {
  RecordWriter out(kVersion);
  out.u8(static_cast<std::uint8_t>(state.upload));
  out.u64(state.total_lines);
  out.u64(state.request_lines);
  out.u64(state.upload_offset_bytes);
  out.text(state.content_hash);
  return out.take();
}

void decode_upload(Place place, std::string_view bytes, JobState& state) {
  RecordReader in(place, bytes, kVersion);
  state.upload = static_cast<UploadState>(in.within(1, 3));
  state.total_lines = in.u64();
  state.request_lines = in.u64();
  state.upload_offset_bytes = in.u64();
  state.content_hash = in.string();
  in.end();
}

std::string encode_progress(const JobState& state) {
  RecordWriter out(kVersion);
  out.u64(state.prepared_through);
  out.boolean(state.paused);
  out.boolean(state.strict_checked);
  out.i64(state.created_at_s);
  out.i64(state.in_progress_at_s);
  out.i64(state.finalizing_at_s);
  out.i64(state.completed_at_s);
  out.i64(state.failed_at_s);
  out.i64(state.expired_at_s);
  out.i64(state.cancelling_at_s);
  out.i64(state.cancelled_at_s);
  out.u64(state.prefix_prompt_tokens);
  out.u64(state.prefix_trie_tokens);
  out.text(state.end_code);
  out.text(state.end_message);
  out.u32(static_cast<std::uint32_t>(state.errors.size()));
  for (const JobState::JobError& error : state.errors) {
    out.text(error.code);
    out.text(error.message);
    out.u64(error.line);
  }
  out.u32(static_cast<std::uint32_t>(state.warnings.size()));
  for (const std::string& warning : state.warnings) out.text(warning);
  return out.take();
}

void decode_progress(Place place, std::string_view bytes, JobState& state) {
  RecordReader in(place, bytes, kVersion);
  state.prepared_through = in.u64();
  state.paused = in.boolean();
  state.strict_checked = in.boolean();
  state.created_at_s = in.i64();
  state.in_progress_at_s = in.i64();
  state.finalizing_at_s = in.i64();
  state.completed_at_s = in.i64();
  state.failed_at_s = in.i64();
  state.expired_at_s = in.i64();
  state.cancelling_at_s = in.i64();
  state.cancelled_at_s = in.i64();
  state.prefix_prompt_tokens = in.u64();
  state.prefix_trie_tokens = in.u64();
  state.end_code = in.string();
  state.end_message = in.string();
  state.errors.resize(in.count(16));
  for (JobState::JobError& error : state.errors) {
    error.code = in.string();
    error.message = in.string();
    error.line = in.u64();
  }
  state.warnings.resize(in.count(4));
  for (std::string& warning : state.warnings) warning = in.string();
  in.end();
}

std::string encode_line_head(const StoredLine& line, std::int64_t queued_us) {
  RecordWriter out(kVersion);
  if (line.num_lines > 1) {
    out.u8(kBlankRun);
    out.i64(queued_us);
    out.u64(line.num_lines);
  } else {
    out.boolean(line.too_long);
    out.i64(queued_us);
  }
  return out.take();
}

StoredLine decode_line(Place place, std::string_view bytes, std::uint64_t line) {
  RecordReader in(place, bytes, kVersion);
  StoredLine out;
  out.line = line;
  const std::uint8_t kind = in.u8();
  if (kind > kBlankRun) in.fail("no kind of line");
  out.too_long = kind == 1;
  out.queued_us = in.i64();
  if (kind == kBlankRun) {
    out.num_lines = in.u64();
    if (out.num_lines < 2 || out.num_lines > line) in.fail("no run of lines");
    in.end();
  } else {
    out.bytes = in.all();
  }
  return out;
}

std::string encode_plan_entry(const PlanEntry& entry, std::uint64_t serial) {
  std::uint64_t num_prompt_tokens = 0;
  for (const auto& prompt : entry.prompts) num_prompt_tokens += prompt.size();
  RecordWriter out(kVersion);
  out.u64(serial);
  out.u32(static_cast<std::uint32_t>(num_prompt_tokens));
  out.u32(entry.num_choices);
  out.u32(entry.max_tokens);
  out.text(entry.model);
  out.text(entry.request);
  out.u32(static_cast<std::uint32_t>(entry.prompts.size()));
  // The first prompt's ids that the key holds are not repeated.
  bool is_first = true;
  for (const auto& prompt : entry.prompts) {
    out.u32(static_cast<std::uint32_t>(prompt.size()));
    for (std::size_t i = is_first ? kKeyIds : 0; i < prompt.size(); ++i) {
      out.u24(static_cast<std::uint32_t>(prompt[i]));
    }
    is_first = false;
  }
  return out.take();
}

PlanItem decode_plan_item(Place place, std::string_view bytes) {
  RecordReader in(place, bytes, kVersion);
  PlanItem item = read_plan_head(in, place);
  if (place.key.size() < keys::kLineKeyBytes) in.fail("the key is too short");
  item.line = *keys::parse_line_key(place.key.substr(place.key.size() - keys::kLineKeyBytes));
  return item;
}

PlanEntry decode_plan_entry(Place place, std::string_view bytes) {
  RecordReader in(place, bytes, kVersion);
  std::optional<PlanKeyParts> parts = parse_plan_key(place.key);
  if (!parts) in.fail("the key is no plan key");
  PlanItem item = read_plan_head(in, place);
  PlanEntry entry;
  entry.key = parts->line;
  entry.model = std::move(item.model);
  entry.fingerprint = std::move(parts->fingerprint);
  entry.priority = parts->priority;
  entry.short_lane = parts->short_lane;
  entry.num_choices = item.num_choices;
  entry.max_tokens = item.max_tokens;
  entry.request = in.string();
  const std::uint32_t num_prompts = in.count(4);
  if (num_prompts == 0) in.fail("no prompt");
  entry.prompts.resize(num_prompts);
  entry.prompts.front() = std::move(parts->ids);
  std::uint64_t num_tokens = 0;
  for (std::vector<std::int32_t>& prompt : entry.prompts) {
    const std::uint32_t num_ids = in.u32();
    const bool all_in_key = &prompt == &entry.prompts.front() && prompt.size() < kKeyIds;
    if (num_ids < prompt.size() || (all_in_key && num_ids > prompt.size()) ||
        (num_ids - prompt.size()) > in.rest_bytes() / 3) {
      in.fail("a prompt's length does not fit");
    }
    prompt.reserve(num_ids);
    while (prompt.size() < num_ids) prompt.push_back(static_cast<std::int32_t>(in.u24()));
    num_tokens += num_ids;
  }
  if (num_tokens != item.num_prompt_tokens) in.fail("the prompts have another number of tokens");
  in.end();
  return entry;
}

std::string encode_result(const LineResult& result, std::uint64_t done_sequence) {
  RecordWriter out(kVersion);
  out.u64(done_sequence);
  out.u32(result.attempt);
  out.u8(static_cast<std::uint8_t>(result.outcome));
  out.boolean(result.has_custom_id);
  write_usage(out, result.usage);
  out.i64(result.times.queued_us);
  out.i64(result.times.admitted_us);
  out.i64(result.times.first_token_us);
  out.i64(result.times.finished_us);
  out.i64(result.price.input);
  out.i64(result.price.cached_input);
  out.i64(result.price.output);
  out.text(result.price.version);
  out.text(result.price.currency);
  out.text(result.custom_id);
  out.text(result.error_code);
  out.text(result.model);
  out.text(result.device);
  out.text(result.output);
  return out.take();
}

LineResult decode_result(Place place, std::string_view bytes, const LineKey& key,
                         std::uint64_t* done_sequence) {
  RecordReader in(place, bytes, kVersion);
  LineResult result;
  result.key = key;
  const std::uint64_t sequence = in.u64();
  if (done_sequence != nullptr) *done_sequence = sequence;
  result.attempt = in.u32();
  result.outcome = static_cast<LineOutcome>(in.within(1, 2));
  result.has_custom_id = in.boolean();
  result.usage = read_usage(in);
  result.times.queued_us = in.i64();
  result.times.admitted_us = in.i64();
  result.times.first_token_us = in.i64();
  result.times.finished_us = in.i64();
  result.price.input = in.i64();
  result.price.cached_input = in.i64();
  result.price.output = in.i64();
  result.price.version = in.string();
  result.price.currency = in.string();
  result.custom_id = in.string();
  result.error_code = in.string();
  result.model = in.string();
  result.device = in.string();
  result.output = in.string();
  in.end();
  return result;
}

}  // namespace batchmill::codec
