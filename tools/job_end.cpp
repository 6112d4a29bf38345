#include "tools/job_end.h"

#include <fmt/format.h>

#include <array>

#include "tools/printable.h"

namespace batchmill {
namespace {

struct Counts {
  std::int64_t total, completed, failed;
  explicit Counts(const Json& batch)
      : total(batch.at("request_counts").at("total")),
        completed(batch.at("request_counts").at("completed")),
        failed(batch.at("request_counts").at("failed")) {}
};

std::string first_error(const Json& batch) {
  const Json& errors = batch.at("errors");
  if (!errors.is_object() || errors.at("data").empty()) return "";
  const Json& error = errors.at("data").front();
  std::string where;
  if (error.at("line").is_number()) where = fmt::format("line {}: ", error.at("line").dump());
  return fmt::format(": {}{}: {}", where, error.at("code").get<std::string>(),
                     printable(error.at("message").get<std::string>()));
}

std::string usage_text(const Json& batch) {
  const Json& usage = batch.at("usage");
  std::string text = fmt::format("{} prompt tokens ({} from the prefix cache), {} generated",
                                 usage.at("input_tokens").dump(),
                                 usage.at("input_tokens_details").at("cached_tokens").dump(),
                                 usage.at("output_tokens").dump());
  const Json& more = batch.at("batchmill");
  if (more.at("currency").is_string() && more.at("cost") == "0") {
    text += ", no prices were configured";
  } else if (more.at("currency").is_string()) {
    text += fmt::format(", cost {} {}", more.at("cost").get<std::string>(),
                        more.at("currency").get<std::string>());
  }
  return text;
}

}  // namespace

bool has_ended(const Json& batch) {
  const std::string status = batch.at("status");
  for (const char* end : {"completed", "failed", "expired", "cancelled"}) {
    if (status == end) return true;
  }
  return false;
}

int job_exit_code(const Json& batch) {
  const Counts counts(batch);
  const bool good = batch.at("status") == "completed" && counts.failed == 0 && counts.completed > 0;
  return good ? 0 : 1;
}

std::string lines_text(const Json& batch) {
  const Counts counts(batch);
  return fmt::format("{} done{} of {} lines", counts.completed,
                     counts.failed != 0 ? fmt::format(", {} failed", counts.failed) : "",
                     counts.total);
}

std::string job_summary(const Json& batch) {
  const Counts counts(batch);
  const std::string id = batch.at("id");
  const std::string status = batch.at("status");
  std::string text;
  if (status == "completed" && counts.completed == 0) {
    text = fmt::format("{} completed, but all {} lines failed\n", id, counts.failed);
  } else if (status == "completed") {
    text = fmt::format("{} completed: {}\n", id, lines_text(batch));
  } else {
    text = fmt::format("{} {}{} ({})\n", id, status, first_error(batch), lines_text(batch));
  }
  if (counts.completed != 0) text += usage_text(batch) + "\n";
  for (const Json& warning : batch.at("batchmill").at("warnings")) {
    text += "warning: " + printable(warning.get<std::string>()) + "\n";
  }
  return text;
}

}  // namespace batchmill
