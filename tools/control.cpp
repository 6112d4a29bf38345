#include <iostream>
#include <optional>

#include "tools/commands.h"
#include "tools/exit_code.h"
#include "tools/job_access.h"
#include "tools/job_end.h"

namespace batchmill {
namespace {

using namespace std::chrono_literals;

std::optional<Json> stored_batch(JobAccess& access, const std::string& job) {
  try {
    return access.ask({{"what", "status"}, {"job", job}}).header.at("batch");
  } catch (const ToolError& error) {
    if (error.exit_code() != kExitNotFound) throw;
    return std::nullopt;
  }
}

int control(const Settings& settings, const std::string& what, const std::string& job) {
  JobAccess access(settings);
  const Json question = {{"op", "request"}, {"what", what}, {"job", job}};
  Json batch;
  bool changed = false;
  try {
    const Json answer = access.ask_daemon(question, 10s).header;
    batch = answer.at("batch");
    changed = answer.value("changed", false);
  } catch (const UnreachableError&) {
    // Without a daemon nothing can be changed; a job that has ended already needs no change.
    const std::optional<Json> stored = stored_batch(access, job);
    if (!stored || !has_ended(*stored)) throw;
    batch = *stored;
  }
  const std::string status = batch.at("status");
  // Who cancels wants an end, which is there; who pauses wants something that cannot be.
  if (what != "cancel" && has_ended(batch)) {
    throw ToolError(kExitUsage, what + ": " + job + " has ended: " + status);
  }
  if (settings.json) std::cout << batch.dump() << std::endl;
  if (settings.quiet) return kExitDone;
  if (what == "cancel" && !changed && has_ended(batch)) {
    std::cerr << job << " had ended already: " << status << std::endl;
  } else {
    const bool paused = batch.at("batchmill").at("paused");
    std::cerr << job << " is " << (paused && !has_ended(batch) ? "paused" : status) << std::endl;
  }
  return kExitDone;
}

void add_one(CLI::App* app, const Settings* settings, Action* action, const std::string& what,
             const std::string& description) {
  CLI::App* command = add_command(app, what, description,
                                  "batchmill " + what + " batch_01jb2w4p8q6t3m9x5c7v0n1k2d");
  auto job = std::make_shared<std::string>();
  command->add_option("JOB", *job, "The job's id")->required();
  command->callback([=] { *action = [=] { return control(*settings, what, *job); }; });
}

}  // namespace

void add_control_commands(CLI::App* app, const Settings* settings, Action* action) {
  add_one(app, settings, action, "cancel", "End a job; finished lines stay");
  add_one(app, settings, action, "pause", "Start no more of a job's lines");
  add_one(app, settings, action, "resume", "Go on with a paused job");
}

}  // namespace batchmill
