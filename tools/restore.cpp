#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>
#include <iostream>

#include "queue/wire.h"
#include "storage/data_directory.h"
#include "storage/job_store.h"
#include "tools/commands.h"
#include "tools/exit_code.h"

namespace batchmill {
namespace {

namespace fs = std::filesystem;

// Nothing may be there but the lock and what a restore that was cut off has left.
void refuse_unless_empty(const DataDirectory& directory) {
  const fs::path unfinished = restoring_directory(directory.store_path());
  for (const auto& entry : fs::directory_iterator(directory.path())) {
    if (entry.path().filename() == "lock" || entry.path() == unfinished) continue;
    throw ToolError(kExitStore,
                    fmt::format("the data directory {} is not empty: it holds {}; name a new one "
                                "with --data",
                                directory.path(), entry.path().filename().string()));
  }
}

int restore(const Settings& settings, const std::string& backup) {
  ::umask(077);
  const DaemonConfig config = settings.load();
  const std::string data = settings.data_directory(config);
  try {
    const DataDirectory directory(data, DataDirectory::Lock::kExclusive);
    refuse_unless_empty(directory);
    const StoreCare::CheckReport report = restore_backup(backup, directory.store_path());
    if (settings.json) {
      std::cout << Json{{"jobs", report.jobs}, {"lines", report.lines}, {"results", report.results}}
                       .dump()
                << std::endl;
    }
    if (!settings.quiet) {
      std::cerr << fmt::format("{} holds {} jobs with {} lines and {} results\n", data, report.jobs,
                               report.lines, report.results);
    }
  } catch (const StorageError& error) {
    throw ToolError(kExitStore, error.what());
  }
  return kExitDone;
}

}  // namespace

void add_restore_command(CLI::App* app, const Settings* settings, Action* action) {
  CLI::App* command =
      add_command(app, "restore", "Make a data directory out of a backup; no daemon may run on it",
                  "batchmill restore /mnt/backup/batchmill --data /var/lib/batchmill");
  auto backup = std::make_shared<std::string>();
  command->add_option("DIR", *backup, "What `backup` was given")->required();
  command->callback([=] { *action = [=] { return restore(*settings, *backup); }; });
}

}  // namespace batchmill
