// Lines become plan entries or failures; the prefixes of a job are measured.
#include <algorithm>
#include <stdexcept>

#include "storage/keys.h"
#include "storage/record_codec.h"
#include "storage/store.h"

namespace batchmill {
namespace {

constexpr std::size_t kMaxWarnings = 20;
constexpr std::size_t kMaxErrors = 100;

}  // namespace

std::vector<std::uint64_t> Store::find_owners(const JobId& id,
                                              std::span<const std::string> custom_ids) const {
  std::vector<std::uint64_t> owners;
  owners.reserve(custom_ids.size());
  for (const std::string& custom_id : custom_ids) owners.push_back(find_line(id, custom_id));
  return owners;
}

std::uint64_t Store::find_line(const JobId& id, const std::string& custom_id) const {
  const std::string key = keys::id_key(id, custom_id);
  const auto value = database_.get(Family::kIds, key);
  return value ? codec::decode_number({"ids", key}, *value) : 0;
}

void Store::claim_ids(const JobId& id,
                      std::span<const std::pair<std::string, std::uint64_t>> custom_ids) {
  const std::lock_guard lock(state_mutex_);
  if (custom_ids.empty() || !is_live(id)) return;
  rocksdb::WriteBatch batch;
  for (const auto& [custom_id, line] : custom_ids) {
    put(batch, Family::kIds, keys::id_key(id, custom_id), codec::encode_number(line));
  }
  database_.write(batch, false, "claim_ids");
}

bool Store::commit_prepared(const JobId& id, Prepared prepared, std::int64_t now_s) {
  const LiveJobPtr live = live_or_throw_unknown(id);
  if (live == nullptr) return false;
  PlanFronts& fronts = plan_fronts();
  std::unique_lock lock(state_mutex_);
  if (prepared.last_line > live->stored_lines) {
    // Lines can be read a moment before the call that has written them returns: let it return.
    lock.unlock();
    { const std::lock_guard upload_lock(live->upload_mutex); }
    lock.lock();
  }
  JobState state = live->job.state;
  if (live->job.ended() || prepared.first_line <= state.prepared_through) return false;
  if (prepared.first_line != state.prepared_through + 1 ||
      prepared.last_line < prepared.first_line || prepared.last_line > live->stored_lines) {
    throw std::invalid_argument("lines " + std::to_string(prepared.first_line) + " to " +
                                std::to_string(prepared.last_line) + " do not follow line " +
                                std::to_string(state.prepared_through));
  }
  const auto check_range = [&](const LineKey& key) {
    if (key.job != id || key.line < prepared.first_line || key.line > prepared.last_line) {
      throw std::invalid_argument("a prepared line lies outside the range that it belongs to");
    }
  };
  rocksdb::WriteBatch batch;
  const std::int64_t seconds = clock_s(now_s, batch);
  state.prepared_through = prepared.last_line;
  const bool is_measured = state.prefix_trie_tokens != 0;
  std::uint64_t serial = last_serial_;
  std::vector<PlanKey> new_keys;
  for (const PlanEntry& entry : prepared.entries) {
    check_range(entry.key);
    PlanKey key = make_plan_key(entry);
    if (!is_measured && entry.shares_prefixes) {
      std::uint32_t number = 0;
      for (const auto& prompt : entry.prompts) {
        put(batch, Family::kPrompts,
            make_prompt_key(entry.key, entry.fingerprint, prompt, number++), {});
        state.prefix_prompt_tokens += prompt.size();
      }
    }
    if (has_result(entry.key)) continue;
    put(batch, Family::kPlan, key, codec::encode_plan_entry(entry, ++serial));
    new_keys.push_back(std::move(key));
  }
  Pending pending;
  bool has_failures = false;
  for (LineResult& failure : prepared.failures) {
    check_range(failure.key);
    if (has_result(failure.key)) continue;
    if (!has_failures) pending = pending_of(*live);
    has_failures = true;
    put_result(batch, std::move(failure), seconds, pending);
  }
  put_sums(batch, id, pending);
  for (const auto& [custom_id, line] : prepared.custom_ids) {
    check_range({id, line});
    put(batch, Family::kIds, keys::id_key(id, custom_id), codec::encode_number(line));
  }
  for (std::string& warning : prepared.warnings) {
    if (state.warnings.size() < kMaxWarnings &&
        std::ranges::find(state.warnings, warning) == state.warnings.end()) {
      state.warnings.push_back(std::move(warning));
    }
  }
  if (state.in_progress_at_s == 0 && !live->job.request.strict) state.in_progress_at_s = seconds;
  if (serial != last_serial_)
    put(batch, Family::kMeta, keys::kSerial, codec::encode_number(serial));
  put_progress(batch, id, state);
  // Without failures nothing becomes visible: what a power cut takes away is prepared again.
  database_.write(batch, has_failures, "commit_prepared");
  fronts.written(new_keys, serial);
  live->job.state = std::move(state);
  if (has_failures) {
    live->job.counters = pending.counters;
    live->next_done = pending.next_done;
  }
  const std::unique_lock jobs_lock(jobs_mutex_);
  last_serial_ = serial;
  return true;
}

void Store::set_strict_checked(const JobId& id) {
  const LiveJobPtr live = live_or_throw_unknown(id);
  if (live == nullptr) return;
  const std::lock_guard lock(state_mutex_);
  JobState state = live->job.state;
  if (live->job.ended() || state.strict_checked) return;
  rocksdb::WriteBatch batch;
  state.strict_checked = true;
  if (state.in_progress_at_s == 0) state.in_progress_at_s = clock_us(0, batch) / 1'000'000;
  put_progress(batch, id, state);
  database_.write(batch, true, "set_strict_checked");
  live->job.state = std::move(state);
}

void Store::fail_job(const JobId& id, const std::string& code,
                     std::vector<JobState::JobError> errors, std::int64_t now_s) {
  const LiveJobPtr live = live_or_throw_unknown(id);
  if (live == nullptr) return;
  const std::lock_guard upload_lock(live->upload_mutex);
  const std::lock_guard lock(state_mutex_);
  if (live->job.ended()) return;
  rocksdb::WriteBatch batch;
  JobState state = live->state();
  state.failed_at_s = clock_s(now_s, batch);
  state.end_code = code;
  if (errors.size() > kMaxErrors) errors.resize(kMaxErrors);
  state.errors = std::move(errors);
  // Nothing of it was prepared: no id names a line that has an answer of its own.
  if (state.prepared_through == 0) erase_prefix(batch, Family::kIds, keys::job_prefix(id));
  write_end(live, state, batch);
  live->upload.is_open = false;
}

void Store::measure_prefixes(const JobId& id) {
  const std::optional<Job> before = read_job(id, nullptr);
  if (!before || before->state.prefix_trie_tokens != 0 ||
      before->state.upload == UploadState::kOpen ||
      before->state.prepared_through != before->state.total_lines) {
    return;
  }
  const std::uint64_t tokens = count_trie_tokens(id);
  if (tokens == 0) return;
  const std::lock_guard lock(state_mutex_);
  const LiveJobPtr live = this->live(id);
  std::optional<Job> job = read_job(id, nullptr);
  // Meanwhile another call may have measured, or an end taken the prompts away.
  if (!job || job->state.prefix_trie_tokens != 0 || (before->ended() != job->ended())) return;
  rocksdb::WriteBatch batch;
  job->state.prefix_trie_tokens = tokens;
  put_progress(batch, id, job->state);
  erase_prefix(batch, Family::kPrompts, keys::job_prefix(id));
  database_.write(batch, true, "measure_prefixes");
  if (live != nullptr) live->job.state.prefix_trie_tokens = tokens;
}

// In sorted order the longest prefix that a prompt shares with any before it is the one it shares
// with its neighbour, so the sum needs no trie: only two prompts at a time.
std::uint64_t Store::count_trie_tokens(const JobId& id) const {
  constexpr std::size_t kHeadBytes = keys::kJobBytes + 8;  // job, fingerprint
  constexpr std::size_t kTailBytes = 3 + 8 + 4;  // zero, line, prompt number
  constexpr std::size_t kIdBytes = 3;
  const std::string prefix = keys::job_prefix(id);
  std::uint64_t tokens = 0;
  std::string last;  // fingerprint and ids
  for (Database::Cursor cursor(database_, Family::kPrompts, prefix, keys::behind(prefix));
       cursor.valid(); cursor.next()) {
    const std::string_view key = cursor.key();
    if (key.size() < kHeadBytes + kTailBytes ||
        (key.size() - kHeadBytes - kTailBytes) % kIdBytes != 0) {
      codec::throw_damaged({"prompts", key}, "no prompt key");
    }
    const std::string_view prompt =
        key.substr(keys::kJobBytes, key.size() - keys::kJobBytes - kTailBytes);
    const std::size_t length = (prompt.size() - 8) / kIdBytes;
    const auto equal = static_cast<std::size_t>(
        std::mismatch(prompt.begin(), prompt.end(), last.begin(), last.end()).first -
        prompt.begin());
    const std::size_t shared = equal < 8 ? 0 : (equal - 8) / kIdBytes;
    // The last token of every prompt is computed: its logits are needed.
    if (length != 0) tokens += length - std::min(shared, length - 1);
    last = prompt;
  }
  return tokens;
}

}  // namespace batchmill
