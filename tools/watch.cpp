#include "tools/watch.h"

#include <fmt/format.h>

#include <iostream>
#include <thread>

#include "tools/commands.h"
#include "tools/exit_code.h"
#include "tools/job_end.h"
#include "tools/progress.h"

namespace batchmill {
namespace {

using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;
constexpr auto kPollInterval = 250ms;
constexpr auto kPatience = 60s;

}  // namespace

Json watch_job(JobAccess& access, const std::string& job, bool quiet,
               std::chrono::seconds patience) {
  Progress progress(quiet);
  SteadyClock::time_point last_live = SteadyClock::now();
  bool told = false;
  const Json question = {{"what", "status"}, {"job", job}};
  while (true) {
    bool live = false;
    try {
      const Json batch = access.ask(question).header.at("batch");
      // The store is only borrowed: a daemon that starts meanwhile must get it.
      access.release();
      if (has_ended(batch)) {
        progress.clear();
        return batch;
      }
      live = access.answered_live();
      if (live) progress.show(batch);
    } catch (const UnreachableError&) {
    } catch (const ToolError& error) {
      // The holder of the store is starting, or ending.
      if (error.exit_code() != kExitStore) throw;
    }
    if (live) {
      last_live = SteadyClock::now();
      told = false;
    } else if (SteadyClock::now() - last_live > patience) {
      progress.clear();
      throw ToolError(kExitUnreachable,
                      fmt::format("job {} has not ended and no daemon answers at {} for {} s", job,
                                  access.endpoint(), patience.count()));
    } else if (!told && SteadyClock::now() - last_live > 2s) {
      progress.clear();
      if (!quiet) std::cerr << "no daemon answers; waiting for one" << std::endl;
      told = true;
    }
    std::this_thread::sleep_for(kPollInterval);
  }
}

void add_watch_command(CLI::App* app, const Settings* settings, Action* action) {
  CLI::App* command = add_command(app, "watch", "Follow a job until it ends",
                                  "batchmill watch batch_01jb2w4p8q6t3m9x5c7v0n1k2d");
  auto job = std::make_shared<std::string>();
  command->add_option("JOB", *job, "The job's id")->required();
  command->callback([=] {
    *action = [=] {
      JobAccess access(*settings);
      const Json batch = watch_job(access, *job, settings->quiet, kPatience);
      if (settings->json) std::cout << batch.dump() << std::endl;
      if (!settings->quiet) std::cerr << job_summary(batch);
      return job_exit_code(batch);
    };
  });
}

}  // namespace batchmill
