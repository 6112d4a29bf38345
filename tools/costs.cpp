#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iostream>
#include <map>
#include <optional>
#include <utility>

#include "storage/money.h"
#include "tools/commands.h"
#include "tools/exit_code.h"
#include "tools/job_access.h"
#include "tools/table.h"

namespace batchmill {
namespace {

using RowSink = std::function<void(const std::string& line)>;

void fetch_ledger(JobAccess& access, const std::string& job, const std::string& by,
                  const RowSink& sink) {
  std::uint64_t next = 0;
  while (true) {
    Json request = {{"what", "costs"}, {"by", by}, {"from", next}, {"max_bytes", 2 << 20}};
    if (!job.empty()) request["job"] = job;
    const WireMessage answer = access.ask(request);
    std::string_view payload = answer.payload;
    while (!payload.empty()) {
      const std::size_t end = payload.find('\n');
      sink(std::string(payload.substr(0, end)));
      payload.remove_prefix(end == std::string_view::npos ? payload.size() : end + 1);
    }
    next = answer.header.at("next");
    if (answer.header.at("at_end").get<bool>()) return;
  }
}

std::vector<std::string> all_jobs(JobAccess& access) {
  std::vector<std::string> jobs;
  while (true) {
    Json request = {{"what", "list"}, {"limit", 1'000}};
    if (!jobs.empty()) request["after"] = jobs.back();
    const Json batches = access.ask(request).header.at("batches");
    if (batches.empty()) return jobs;
    for (const Json& batch : batches) jobs.push_back(batch.at("id"));
  }
}

std::string text_or_dash(const Json& row, const char* key) {
  const auto found = row.find(key);
  if (found == row.end() || found->is_null()) return "-";
  return found->is_string() ? found->get<std::string>() : found->dump();
}

// The columns that say what a row is about: keys of a ledger object. A table of one job needs none
// that names it.
std::vector<std::string> name_columns(const std::string& by, bool one_job) {
  std::vector<std::string> keys;
  if ((by == "job" || by == "line") && !one_job) keys.emplace_back("job");
  if (by == "line") keys.insert(keys.end(), {"line", "custom_id"});
  if (by == "day") keys.emplace_back("day");
  keys.emplace_back("model");
  return keys;
}

// "12.5" → 12.5 × 10^12. Precondition: as format_picos writes it, not negative.
Picos parse_picos(const std::string& text) {
  constexpr std::size_t kDecimals = 12;
  const std::size_t point = std::min(text.find('.'), text.size());
  std::string digits = text.substr(0, point);
  std::string decimals = point < text.size() ? text.substr(point + 1) : "";
  decimals.resize(kDecimals, '0');
  Picos value = 0;
  for (const char digit : digits + decimals) value = value * 10 + (digit - '0');
  return value;
}

// The sum of a table's rows, as a row; nothing when they are not more than one, or of several
// currencies.
class Total {
 public:
  void add(const Json& row) {
    ++num_rows_;
    if (sum_.is_null()) {
      sum_ = row;
      for (const auto& [key, amount] : row.at("cost").items()) costs_[key] = parse_picos(amount);
      return;
    }
    for (const char* part : {"lines", "tokens"}) {
      for (const auto& sum : sum_[part].items()) {
        sum.value() =
            sum.value().get<std::uint64_t>() + row.at(part).at(sum.key()).get<std::uint64_t>();
      }
    }
    for (const auto& sum : sum_["device_seconds"].items()) {
      sum.value() =
          sum.value().get<double>() + row.at("device_seconds").at(sum.key()).get<double>();
    }
    for (const auto& [key, amount] : row.at("cost").items()) costs_[key] += parse_picos(amount);
    // What was not billed has no currency.
    const Json& currency = row.at("currency");
    if (sum_["currency"].is_null()) sum_["currency"] = currency;
    several_currencies_ |= !currency.is_null() && currency != sum_["currency"];
  }

  std::optional<Json> row(const std::vector<std::string>& names) const {
    if (num_rows_ < 2 || several_currencies_) return std::nullopt;
    Json row = sum_;
    for (const std::string& name : names) row[name] = nullptr;
    row[names.front()] = "total";
    for (const auto& [key, amount] : costs_) row["cost"][key] = format_picos(amount);
    return row;
  }

 private:
  std::size_t num_rows_ = 0;
  Json sum_;
  std::map<std::string, Picos> costs_;
  bool several_currencies_ = false;
};

std::vector<std::string> table_row(const Json& row, const std::vector<std::string>& names) {
  std::vector<std::string> cells;
  for (const std::string& name : names) cells.push_back(text_or_dash(row, name.c_str()));
  const Json& tokens = row.at("tokens");
  const Json& cost = row.at("cost");
  const Json& device = row.at("device_seconds");
  cells.insert(cells.end(),
               {row.at("lines").at("completed").dump(), row.at("lines").at("failed").dump(),
                tokens.at("prompt").dump(), tokens.at("prompt_cached").dump(),
                tokens.at("recomputed").dump(), tokens.at("completion").dump(),
                fmt::format("{:.2f}", device.at("prefill").get<double>()),
                fmt::format("{:.2f}", device.at("decode").get<double>()), cost.at("prompt"),
                cost.at("prompt_cached"), cost.at("completion"), cost.at("total"),
                text_or_dash(row, "currency")});
  return cells;
}

Table costs_table(const std::vector<std::string>& names) {
  std::vector<std::string> header;
  for (std::string name : names) {
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
    header.push_back(std::move(name));
  }
  for (const char* name :
       {"DONE", "FAILED", "PROMPT", "CACHED", "RECOMPUTED", "GENERATED", "PREFILL S", "DECODE S",
        "PROMPT COST", "CACHED COST", "GENERATED COST", "TOTAL", "CURRENCY"}) {
    header.emplace_back(name);
  }
  return Table(std::move(header));
}

int costs(const Settings& settings, const std::string& job, const std::string& by) {
  JobAccess access(settings);
  const std::vector<std::string> names = name_columns(by, !job.empty());
  Table table = costs_table(names);
  Total total;
  const RowSink sink = [&](const std::string& line) {
    if (settings.json) {
      std::cout << line << '\n';
    } else {
      const Json row = Json::parse(line);
      table.add(table_row(row, names));
      total.add(row);
    }
  };
  if (by == "line" && job.empty()) {
    for (const std::string& each : all_jobs(access)) fetch_ledger(access, each, by, sink);
  } else {
    fetch_ledger(access, job, by, sink);
  }
  if (const auto row = total.row(names)) table.add(table_row(*row, names));
  if (!settings.json) std::cout << table.text();
  std::cout << std::flush;
  return kExitDone;
}

}  // namespace

void add_costs_command(CLI::App* app, const Settings* settings, Action* action) {
  CLI::App* command =
      add_command(app, "costs", "Tokens, device time and money", "batchmill costs --by day");
  auto job = std::make_shared<std::string>();
  auto by = std::make_shared<std::string>("job");
  command->add_option("JOB", *job, "Only this job");
  command->add_option("--by", *by, "One object per line, job, model or day [job]")
      ->check(CLI::IsMember({"line", "job", "model", "day"}))
      ->type_name("WHAT");
  command->callback([=] { *action = [=] { return costs(*settings, *job, *by); }; });
}

}  // namespace batchmill
