#include "storage/ledger.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <tuple>

#include "storage/keys.h"
#include "storage/record_codec.h"
#include "storage/store.h"

namespace batchmill {
namespace {

std::string two_digits(unsigned value) {
  std::string text = std::to_string(value);
  return text.size() < 2 ? "0" + text : text;
}

// Adds a row to the sum of its kind: the price versions are kept side by side.
void fold(LedgerRow& sum, const LedgerRow& row) {
  sum.add(row);
  if (sum.currency.empty()) sum.currency = row.currency;
  if (row.price_version.empty()) return;
  const std::string version = "," + row.price_version + ",";
  if (("," + sum.price_version + ",").find(version) != std::string::npos) return;
  if (!sum.price_version.empty()) sum.price_version += ',';
  sum.price_version += row.price_version;
}

// Sums rows by a name and currency. What was not billed has no currency and joins the first that
// has one.
template <typename Name>
class RowSums {
 public:
  void add(const Name& name, const LedgerRow& names, const LedgerRow& row) {
    const auto [it, is_new] = sums_[name].try_emplace(row.currency, names);
    fold(it->second, row);
    if (is_new) return;
    if (it->second.model != names.model) it->second.model.clear();
  }

  void emit(const std::function<void(const LedgerRow&)>& out) const {
    for (const auto& [name, by_currency] : sums_) {
      const auto unbilled = by_currency.find("");
      bool has_joined = unbilled == by_currency.end();
      for (const auto& [currency, sum] : by_currency) {
        if (currency.empty()) continue;
        LedgerRow row = sum;
        if (!has_joined) {
          if (row.model != unbilled->second.model) row.model.clear();
          fold(row, unbilled->second);
          has_joined = true;
        }
        out(row);
      }
      if (!has_joined) out(unbilled->second);
    }
  }

 private:
  std::map<Name, std::map<std::string, LedgerRow>> sums_;
};

}  // namespace

void LedgerRow::add(const LedgerRow& other) {
  completed += other.completed;
  failed += other.failed;
  usage += other.usage;
  cost_prompt += other.cost_prompt;
  cost_prompt_cached += other.cost_prompt_cached;
  cost_completion += other.cost_completion;
}

std::uint32_t day_of(std::int64_t seconds) {
  return seconds <= 0 ? 0 : static_cast<std::uint32_t>(seconds / 86'400);
}

std::string day_text(std::uint32_t day) {
  const std::chrono::year_month_day date{
      std::chrono::sys_days{std::chrono::days{static_cast<int>(day)}}};
  return std::to_string(static_cast<int>(date.year())) + "-" +
         two_digits(static_cast<unsigned>(date.month())) + "-" +
         two_digits(static_cast<unsigned>(date.day()));
}

LedgerRow ledger_of(const LineResult& result) {
  LedgerRow row;
  row.job = result.key.job;
  row.model = result.model;
  (result.outcome == LineOutcome::kCompleted ? row.completed : row.failed) = 1;
  row.usage = result.usage;
  row.cost_prompt = cost_of(result.usage.prompt_computed_tokens, result.price.input);
  row.cost_prompt_cached = cost_of(result.usage.prompt_cached_tokens, result.price.cached_input);
  row.cost_completion = cost_of(result.usage.completion_tokens, result.price.output);
  if (result.usage.prompt_tokens + result.usage.completion_tokens != 0) {
    row.currency = result.price.currency;
    row.price_version = result.price.version;
  }
  return row;
}

void Store::read_job_ledger(const Job& job, const LedgerSink& sink) const {
  const std::string prefix = keys::job_prefix(job.id);
  for (Database::Cursor cursor(database_, Family::kLedger, prefix, keys::behind(prefix));
       cursor.valid(); cursor.next()) {
    const codec::Place place{"ledger", cursor.key()};
    std::optional<keys::LedgerKey> key = keys::parse_ledger_key(cursor.key());
    if (!key) codec::throw_damaged(place, "no ledger key");
    LedgerRow out = codec::decode_ledger(place, cursor.value());
    out.job = key->job;
    out.day = day_text(key->day);
    out.model = std::move(key->model);
    out.currency = std::move(key->currency);
    out.price_version = std::move(key->price_version);
    sink(out);
  }
  const std::uint64_t answered = job.counters.completed + job.counters.failed;
  if (job.ended() && answered < job.state.request_lines) {
    LedgerRow out;
    out.job = job.id;
    out.day = day_text(day_of(job.state.end_time_s()));
    out.failed = job.state.request_lines - answered;
    sink(out);
  }
}

void Store::read_line_ledger(const JobId& id, std::uint64_t first_line,
                             const LedgerSink& sink) const {
  constexpr std::size_t kPageResults = 1'000;
  constexpr std::size_t kPageBytes = 4 << 20;
  ResultPage page;
  page.next = first_line;
  while (!page.at_end) {
    page = read_results(id, ResultOrder::kInput, page.next, kPageResults, kPageBytes);
    for (LineResult& result : page.results) {
      LedgerRow out = ledger_of(result);
      out.line = result.key.line;
      out.custom_id = std::move(result.custom_id);
      out.input = std::move(result.input);
      sink(out);
    }
  }
}

void Store::read_ledger(const std::optional<JobId>& id, LedgerBy by, const LedgerSink& sink,
                        const std::optional<std::string>& owner) const {
  const std::vector<JobId> ids = id ? std::vector{*id} : job_ids();
  RowSums<std::string> sums;  // by model or day
  for (const JobId& job_id : ids) {
    const std::optional<Job> job = read_job(job_id, nullptr);
    if (!job) {
      if (id) throw StorageError(StorageError::Kind::kMissing, "no job " + job_id.to_string());
      continue;
    }
    if (!id && owner && job->request.owner != *owner) continue;
    if (by == LedgerBy::kLine) {
      read_line_ledger(job_id, 0, sink);
      continue;
    }
    RowSums<std::string> job_sums;  // by model
    read_job_ledger(*job, [&](const LedgerRow& part) {
      LedgerRow names;
      if (by == LedgerBy::kJob || id) names.job = job_id;
      names.model = part.model;
      if (by == LedgerBy::kDay) names.day = part.day;
      if (by == LedgerBy::kJob) {
        job_sums.add(part.model, names, part);
      } else {
        sums.add(by == LedgerBy::kDay ? part.day : part.model, names, part);
      }
    });
    job_sums.emit(sink);
  }
  sums.emit(sink);
}

}  // namespace batchmill
