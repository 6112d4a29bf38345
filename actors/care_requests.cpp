#include "actors/care_requests.h"

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

}  // namespace batchmill
