#include <fmt/format.h>

#include <csignal>
#include <iostream>

#include "config/duration.h"
#include "tools/commands.h"
#include "tools/exit_code.h"
#include "tools/interrupt_hint.h"
#include "tools/job_access.h"
#include "tools/job_end.h"
#include "tools/signals.h"
#include "tools/submission.h"
#include "tools/watch.h"

namespace batchmill {
namespace {

using namespace std::chrono_literals;

struct SubmitFlags {
  SubmissionFlags submission;
  std::string timeout = "60s";
  bool watch = false;
  bool wait = false;
};

// The command that goes on where this one stopped.
std::string resuming_command(const Settings& settings, const SubmitFlags& submit,
                             const std::string& key) {
  const SubmissionFlags& flags = submit.submission;
  std::string command = "batchmill submit " + shell_quoted(flags.file);
  const auto add = [&](const char* flag, const std::string& value) {
    if (!value.empty()) command += fmt::format(" {} {}", flag, shell_quoted(value));
  };
  add("--idempotency-key", key);
  add("--name", flags.name);
  if (flags.priority != 0) add("--priority", std::to_string(flags.priority));
  add("--deadline", flags.deadline);
  if (flags.strict) command += " --strict";
  for (const std::string& entry : flags.metadata) add("--metadata", entry);
  if (submit.watch) command += " --watch";
  if (submit.wait) command += " --wait";
  return command + access_flags(settings);
}

std::chrono::seconds parse_timeout(const std::string& text) {
  const std::optional<std::int64_t> seconds = parse_duration_s(text);
  if (!seconds || *seconds <= 0 || *seconds > 366 * 86'400) {
    throw ToolError(kExitUsage, "--timeout " + text + ": expected a duration such as 60s");
  }
  return std::chrono::seconds(*seconds);
}

int submit(const Settings& settings, const SubmitFlags& flags) {
  const std::chrono::seconds timeout = parse_timeout(flags.timeout);
  JobAccess access(settings);
  std::string key = flags.submission.idempotency_key;
  if (key.empty()) {
    key = random_key();
  } else if (flags.submission.fresh) {
    key += "-" + random_key();
  }
  const std::string command = resuming_command(settings, flags, key);
  InterruptHint hint(command);
  SignalThread signals({SIGINT, SIGTERM}, [&](int, int) {
    std::cerr << '\n' << hint.text() << std::endl;
    exit_at_once(kExitInterrupted);
  });
  Submission submission(flags.submission);
  submission.set_key(key);
  // With a key of the user's, the content is part of the job's identity.
  if (!flags.submission.idempotency_key.empty()) submission.content_hash();

  Submission::Uploaded result;
  if (!settings.quiet && settings.endpoint.empty() &&
      DataDirectory::holder(access.data_directory()) == 0) {
    std::cerr << fmt::format(
                     "no daemon runs on {}; waiting up to {} (start one: batchmilld --model "
                     "FILE)",
                     access.data_directory(), flags.timeout)
              << std::endl;
  }
  {
    JobClient client = access.new_client("batchmill submit");
    result = submission.upload_or_say(client, timeout, settings.quiet, command);
  }
  hint.stored(result.job, settings);
  std::cout << result.job << std::endl;
  if (!result.kept.empty() && !settings.quiet) {
    std::cerr << result.kept << std::endl;
  } else if (result.existed && !settings.quiet) {
    std::cerr << "the same job had been submitted before" << std::endl;
  }
  if (!result.truncated.empty()) {
    std::cerr << result.truncated << "; the lines before that run, then the job ends failed"
              << std::endl;
  }
  if (!flags.watch && !flags.wait) return result.truncated.empty() ? kExitDone : kExitFailedLines;
  const Json batch = watch_job(access, result.job, settings.quiet || flags.wait, 60s);
  if (!settings.quiet) std::cerr << job_summary(batch);
  return job_exit_code(batch);
}

}  // namespace

void add_submit_command(CLI::App* app, const Settings* settings, Action* action) {
  CLI::App* command =
      add_command(app, "submit", "Send a job to the daemon; prints its id once every line is safe",
                  "batchmill submit requests.jsonl --name nightly --watch");
  auto flags = std::make_shared<SubmitFlags>();
  add_submission_flags(command, &flags->submission,
                       "A new job, although the --idempotency-key was used (without one, every "
                       "submit is a new job)");
  command->add_option("--timeout", flags->timeout, "Try again this long without a daemon [60s]")
      ->type_name("DUR");
  CLI::Option* watch = command->add_flag("--watch", flags->watch, "Then follow it to its end");
  command->add_flag("--wait", flags->wait, "Then wait for its end without progress")
      ->excludes(watch);
  command->callback([=] { *action = [=] { return submit(*settings, *flags); }; });
}

}  // namespace batchmill
