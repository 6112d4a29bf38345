#include "actors/care_requests.h"

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace batchmill {
namespace {

std::string what_of(const Json& header) {
  const auto what = header.find("what");
  return what != header.end() && what->is_string() ? what->get<std::string>() : "";
}

Json backup(const Json& request, StoreCare& store, const std::atomic<bool>& stop) {
  const auto directory = request.find("directory");
  if (directory == request.end() || !directory->is_string() ||
      !directory->get_ref<const std::string&>().starts_with('/')) {
    throw std::invalid_argument("directory must be an absolute path");
  }
  const StoreCare::BackupReport report = store.backup(directory->get<std::string>(), stop);
  return {{"bytes", report.bytes}, {"new_bytes", report.new_bytes}};
}

Json prune(const Json& request, StoreCare& store, std::int64_t now_s,
           const std::atomic<bool>& stop) {
  const auto age = request.find("older_than_s");
  if (age == request.end() || !age->is_number_integer() || age->get<std::int64_t>() < 0) {
    throw std::invalid_argument("older_than_s must be a number of seconds");
  }
  const StoreCare::PruneReport report = store.prune(now_s - age->get<std::int64_t>(), stop);
  return {{"jobs", report.jobs}, {"lines", report.lines}, {"results", report.results}};
}

}  // namespace

bool is_care_request(const Json& header) {
  const std::string what = what_of(header);
  return what == "backup" || what == "compact" || what == "prune";
}

Json care_response(const Json& request, StoreCare& store, std::int64_t now_s,
                   std::atomic<bool>& stop) {
  const std::string what = what_of(request);
  Json answer = {{"op", "response"}};
  try {
    if (what == "backup") {
      answer.update(backup(request, store, stop));
    } else if (what == "prune") {
      answer.update(prune(request, store, now_s, stop));
    } else {
      const StoreCare::CompactReport report = store.compact(stop);
      answer.update(
          Json{{"bytes_before", report.bytes_before}, {"bytes_after", report.bytes_after}});
    }
  } catch (const std::invalid_argument& error) {
    return error_header(request, "invalid_request", error.what());
  } catch (const StorageError& error) {
    const bool full = error.kind() == StorageError::Kind::kFull;
    return error_header(request, full ? "storage_full" : "storage_error", error.what());
  }
  if (request.contains("id")) answer["id"] = request["id"];
  return answer;
}

std::string care_text(const Json& request, const Json& answer) {
  const std::string what = what_of(request);
  const auto number = [&](const char* key) { return answer.at(key).get<std::uint64_t>(); };
  const auto megabytes = [&](const char* key) {
    return fmt::format("{:.1f} MB", static_cast<double>(number(key)) / 1e6);
  };
  if (answer.at("op") == "error") {
    return fmt::format("{} failed: {}", what, answer.at("message").get<std::string>());
  }
  if (what == "backup") {
    return fmt::format("{} holds the store as it was, {}, of it new {}",
                       request.at("directory").get<std::string>(), megabytes("bytes"),
                       megabytes("new_bytes"));
  }
  if (what == "prune") {
    return fmt::format("removed {} jobs with {} lines and {} results", number("jobs"),
                       number("lines"), number("results"));
  }
  return fmt::format("tables took {} and take {} now", megabytes("bytes_before"),
                     megabytes("bytes_after"));
}

}  // namespace batchmill
