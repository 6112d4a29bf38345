// backup, compact, prune: done by the process that holds the store, or here when nobody does.
#include "actors/care_requests.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <thread>

#include "config/duration.h"
#include "queue/job_client.h"
#include "storage/data_directory.h"
#include "storage/job_store.h"
#include "tools/commands.h"
#include "tools/exit_code.h"
#include "tools/job_access.h"
#include "tools/submission.h"

namespace batchmill {
namespace {

using namespace std::chrono_literals;
constexpr auto kAnswerTimeout = 10s;
constexpr auto kReaderPatience = 10s;

// Asks a daemon, and again while it is busy with the answer and alive. Throws UnreachableError.
Json ask_daemon(const std::string& endpoint, const DaemonConfig& config, const Json& request) {
  JobClient client = make_client(endpoint, "batchmill", config);
  while (true) {
    try {
      return client.request(request, kAnswerTimeout).header;
    } catch (const UnreachableError&) {
      client.request({{"what", "list"}, {"limit", 1}}, kAnswerTimeout);
    }
  }
}

// The directory's own, once nobody else has it; null while a process holds it that can be asked.
std::unique_ptr<DataDirectory> try_lock(const std::string& data) {
  const auto give_up = std::chrono::steady_clock::now() + kReaderPatience;
  while (true) {
    try {
      return std::make_unique<DataDirectory>(data, DataDirectory::Lock::kExclusive);
    } catch (const StorageError& error) {
      if (error.kind() != StorageError::Kind::kLocked) throw;
      if (DataDirectory::holder(data) != 0) return nullptr;
      // A query reads it.
      if (std::chrono::steady_clock::now() > give_up) throw;
      std::this_thread::sleep_for(20ms);
    }
  }
}

Json do_here(const DataDirectory& directory, const StorageOptions& options, const Json& request) {
  std::atomic<bool> stop{false};
  const auto store = JobStore::open(directory.store_path(), options, JobStore::Mode::kReadWrite);
  const std::int64_t now_s = std::chrono::duration_cast<std::chrono::seconds>(
                                 std::chrono::system_clock::now().time_since_epoch())
                                 .count();
  Json answer = care_response(request, *store, now_s, stop);
  if (answer.at("op") == "error") {
    const bool refused = answer.at("code") == "invalid_request";
    throw ToolError(refused ? kExitUsage : kExitStore, answer.at("message"));
  }
  return answer;
}

// Absent when there is no store.
std::optional<Json> do_care(const Settings& settings, Json request) {
  ::umask(077);
  request["ticket"] = random_key();
  const DaemonConfig config = settings.load();
  if (!settings.endpoint.empty()) return ask_daemon(settings.endpoint, config, request);
  const std::string data = settings.data_directory(config);
  // A holder may end, or another one come, between the look at the lock and the question.
  for (int attempt = 0;; ++attempt) {
    if (!std::filesystem::exists(data + "/store/CURRENT") && DataDirectory::holder(data) == 0) {
      return std::nullopt;
    }
    if (const auto lock = try_lock(data)) {
      StorageOptions options = config.storage.options;
      options.compaction_yields = false;  // to whom: it is all that this process does
      return do_here(*lock, options, request);
    }
    const int pid = DataDirectory::holder(data);
    try {
      return ask_daemon(DataDirectory::control_endpoint(data), config, request);
    } catch (const UnreachableError&) {
      if (DataDirectory::holder(data) == 0 && attempt < 3) continue;
      throw ToolError(kExitStore,
                      fmt::format("the data directory {} is held by process {}, which does not "
                                  "answer (it may be starting)",
                                  data, pid));
    }
  }
}

// Asks, and prints the answer; `nothing`: the answer where there is no store, null if that is
// an error.
int care(const Settings& settings, const Json& request, const Json& nothing) {
  std::optional<Json> done = do_care(settings, request);
  if (!done && nothing.is_null()) throw ToolError(kExitStore, "there is no store to back up");
  Json answer = done ? std::move(*done) : nothing;
  answer["op"] = "response";
  if (!settings.quiet) std::cerr << care_text(request, answer) << std::endl;
  for (const char* field : {"op", "id"}) answer.erase(field);
  if (settings.json) std::cout << answer.dump() << std::endl;
  return kExitDone;
}

// A backup inside of what it is of goes with it.
void refuse_own_directory(const Settings& settings, const std::string& directory) {
  namespace fs = std::filesystem;
  const std::string data = settings.data_directory(settings.load());
  const fs::path inside = fs::weakly_canonical(directory);
  for (fs::path folder = inside; !folder.empty(); folder = folder.parent_path()) {
    if (folder == fs::weakly_canonical(data)) {
      throw ToolError(kExitUsage, fmt::format("{} lies in the data directory {}, and a backup in "
                                              "there would be lost with it",
                                              directory, data));
    }
    if (folder == folder.parent_path()) return;
  }
}

int backup(const Settings& settings, const std::string& directory) {
  const std::string absolute = std::filesystem::absolute(directory).lexically_normal();
  if (settings.endpoint.empty()) refuse_own_directory(settings, absolute);
  const Json request = {{"what", "backup"}, {"directory", absolute}};
  return care(settings, request, nullptr);
}

int compact(const Settings& settings) {
  if (!settings.quiet) std::cerr << "writing every table of the store anew …" << std::endl;
  return care(settings, {{"what", "compact"}}, {{"bytes_before", 0}, {"bytes_after", 0}});
}

int prune(const Settings& settings, const std::string& age) {
  const std::optional<std::int64_t> older_than_s = parse_duration_s(age);
  if (!older_than_s || *older_than_s < 0) {
    throw ToolError(kExitUsage, "--older-than " + age + ": expected a duration such as 30d");
  }
  return care(settings, {{"what", "prune"}, {"older_than_s", *older_than_s}},
              {{"jobs", 0}, {"lines", 0}, {"results", 0}});
}

}  // namespace

void add_care_commands(CLI::App* app, const Settings* settings, Action* action) {
  auto text = std::make_shared<std::string>();
  CLI::App* command =
      add_command(app, "backup", "Copy the store into a directory; the next time only what is new",
                  "batchmill backup /mnt/backup/batchmill");
  command->add_option("DIR", *text, "Empty, or holding the backup that the new one replaces")
      ->required();
  command->callback([=] { *action = [=] { return backup(*settings, *text); }; });

  command =
      add_command(app, "compact", "Give back the space of what was removed", "batchmill compact");
  command->callback([=] { *action = [=] { return compact(*settings); }; });

  command = add_command(app, "prune", "Remove jobs that ended long ago, with lines and results",
                        "batchmill prune --older-than 30d");
  command->add_option("--older-than", *text, "Time since their end, such as 12h or 30d")
      ->required()
      ->type_name("DUR");
  command->callback([=] { *action = [=] { return prune(*settings, *text); }; });
}

}  // namespace batchmill
