#include "tools/status.h"

#include <fmt/format.h>

#include <ctime>
#include <iostream>

#include "tools/commands.h"
#include "tools/exit_code.h"
#include "tools/job_access.h"
#include "tools/job_end.h"
#include "tools/printable.h"
#include "tools/progress.h"
#include "tools/table.h"

namespace batchmill {
namespace {

std::string utc(const Json& time_s) {
  if (!time_s.is_number()) return "-";
  const std::time_t seconds = time_s;
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

std::string cost_text(const Json& batch) {
  const Json& more = batch.at("batchmill");
  if (!more.at("cost").is_string() || !more.at("currency").is_string()) return "-";
  if (more.at("cost") == "0") return "no prices";
  return fmt::format("{} {}", more.at("cost").get<std::string>(),
                     more.at("currency").get<std::string>());
}

// A job on its own: everything that a person may want to know, one fact a line.
std::string job_text(const Json& batch) {
  const Json& counts = batch.at("request_counts");
  const Json& usage = batch.at("usage");
  const Json& more = batch.at("batchmill");
  std::string text;
  if (has_ended(batch)) {
    text = job_summary(batch);
  } else {
    text = fmt::format("{} {}: {}\n", batch.at("id").get<std::string>(),
                       batch.at("status").get<std::string>(), progress_text(batch));
  }
  const auto line = [&](const char* label, const std::string& value) {
    text += fmt::format("  {:<12} {}\n", label, printable(value));
  };
  if (more.at("name").is_string()) line("name", more.at("name"));
  line("created", utc(batch.at("created_at")));
  line("lines", fmt::format("{} done, {} failed, {} running, {} pending, {} in all",
                            counts.at("completed").dump(), counts.at("failed").dump(),
                            more.at("lines_running").dump(), more.at("lines_pending").dump(),
                            counts.at("total").dump()));
  line("tokens",
       fmt::format("{} prompt ({} cached), {} generated, {:.0f} a second",
                   usage.at("input_tokens").dump(),
                   usage.at("input_tokens_details").at("cached_tokens").dump(),
                   usage.at("output_tokens").dump(), more.at("tokens_per_second").get<double>()));
  const Json& prefix = more.at("prefix");
  if (prefix.at("possible_tokens").is_number()) {
    // What its lines share with each other; hits on what other jobs left come on top.
    const auto achieved = prefix.at("achieved_tokens").get<std::int64_t>();
    const auto cached = usage.at("input_tokens_details").at("cached_tokens").get<std::int64_t>();
    line("prefix",
         fmt::format("{} of {} tokens saved that its own lines share{}{}", achieved,
                     prefix.at("possible_tokens").dump(),
                     prefix.at("ratio").is_number()
                         ? fmt::format(" ({:.3f})", prefix.at("ratio").get<double>())
                         : "",
                     cached > achieved
                         ? fmt::format(", {} more were cached from other jobs", cached - achieved)
                         : ""));
  }
  line("cost", cost_text(batch) == "no prices" ? "no prices were configured" : cost_text(batch));
  if (!has_ended(batch)) {
    for (const Json& warning : more.at("warnings")) line("warning", warning);
  }
  return text;
}

}  // namespace

std::string jobs_table(const std::vector<Json>& batches) {
  Table table({"JOB", "NAME", "STATUS", "DONE", "FAILED", "TOTAL", "TOKENS/S", "ETA", "COST"});
  for (const Json& batch : batches) {
    const Json& counts = batch.at("request_counts");
    const Json& more = batch.at("batchmill");
    const bool ended = has_ended(batch);
    std::string status = batch.at("status");
    if (!ended && more.at("paused").get<bool>()) status += " (paused)";
    const Json& eta = more.at("eta_seconds");
    table.add({batch.at("id"), more.at("name").is_string() ? more.at("name") : Json(""), status,
               counts.at("completed").dump(), counts.at("failed").dump(), counts.at("total").dump(),
               fmt::format("{:.0f}", more.at("tokens_per_second").get<double>()),
               ended || !eta.is_number() ? "-" : human_seconds(eta), cost_text(batch)});
  }
  return table.text();
}

void add_status_command(CLI::App* app, const Settings* settings, Action* action) {
  CLI::App* command = add_command(app, "status", "How a job stands, or the newest jobs without one",
                                  "batchmill status batch_01jb2w4p8q6t3m9x5c7v0n1k2d --json");
  auto job = std::make_shared<std::string>();
  command->add_option("JOB", *job, "The job's id");
  command->callback([=] {
    *action = [=] {
      JobAccess access(*settings);
      if (!job->empty()) {
        const Json batch = access.ask({{"what", "status"}, {"job", *job}}).header.at("batch");
        std::cout << (settings->json ? batch.dump() + "\n" : job_text(batch)) << std::flush;
        return int{kExitDone};
      }
      const Json batches = access.ask({{"what", "list"}, {"limit", 20}}).header.at("batches");
      if (settings->json) {
        for (const Json& batch : batches) std::cout << batch.dump() << '\n';
      } else {
        std::cout << jobs_table(batches.get<std::vector<Json>>());
      }
      return int{kExitDone};
    };
  });
}

}  // namespace batchmill
