#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "config/duration.h"
#include "tools/commands.h"
#include "tools/exit_code.h"
#include "tools/interrupt_hint.h"
#include "tools/job_access.h"
#include "tools/job_end.h"
#include "tools/result_lines.h"
#include "tools/signals.h"
#include "tools/submission.h"
#include "tools/watch.h"

namespace batchmill {
namespace {

using namespace std::chrono_literals;

struct ResubmitFlags {
  std::string job;
  bool failed = false;
  std::string idempotency_key;
  std::string timeout = "60s";
  bool watch = false;
  bool wait = false;
};

// Lines on their way from one job to the next: an upload may have to step back.
class LineFile {
 public:
  LineFile() {
    path_ = std::filesystem::temp_directory_path() / "batchmill-resubmit-XXXXXX";
    const int fd = ::mkstemp(path_.data());
    if (fd < 0) throw ToolError(kExitStore, "cannot write " + path_);
    ::close(fd);
    out_.open(path_, std::ios::binary);
  }
  ~LineFile() { remove(); }
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  void add(std::string_view line) {
    out_ << line << '\n';
    ++num_lines_;
  }
  void close() {
    out_.close();
    if (!out_) throw ToolError(kExitStore, "cannot write " + path_);
  }
  void remove() const {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  const std::string& path() const { return path_; }
  std::uint64_t num_lines() const { return num_lines_; }

 private:
  std::string path_;
  std::ofstream out_;
  std::uint64_t num_lines_ = 0;
};

// The new job is like the old one in name, priority and metadata.
SubmissionFlags flags_of(const Json& batch, const std::string& file) {
  SubmissionFlags flags;
  flags.file = file;
  const Json& ours = batch.at("batchmill");
  if (ours.at("name").is_string()) flags.name = ours.at("name");
  flags.priority = ours.at("priority");
  if (batch.at("metadata").is_object()) {
    for (const auto& [key, value] : batch.at("metadata").items()) {
      flags.metadata.push_back(key + "=" + value.get<std::string>());
    }
  }
  return flags;
}

int resubmit(const Settings& settings, const ResubmitFlags& flags) {
  const std::optional<std::int64_t> timeout_s = parse_duration_s(flags.timeout);
  if (!timeout_s || *timeout_s <= 0) {
    throw ToolError(kExitUsage, "--timeout " + flags.timeout + ": expected a duration such as 60s");
  }
  if (!flags.failed) {
    throw ToolError(kExitUsage, "say which lines: --failed is the only choice");
  }
  const std::string key = flags.idempotency_key.empty() ? random_key() : flags.idempotency_key;
  const std::string command =
      settings.command_line +
      (flags.idempotency_key.empty() ? " --idempotency-key " + key : std::string());
  LineFile file;
  InterruptHint hint(command);
  SignalThread signals({SIGINT, SIGTERM}, [&](int, int) {
    file.remove();
    std::cerr << '\n' << hint.text() << std::endl;
    exit_at_once(kExitInterrupted);
  });
  JobAccess access(settings);
  const Json batch = access.ask({{"what", "status"}, {"job", flags.job}}).header.at("batch");
  if (!has_ended(batch)) {
    throw ToolError(kExitUsage, flags.job + " has not ended: more of its lines may fail");
  }
  ResultSelection selection;
  selection.job = flags.job;
  selection.side = "errors";
  selection.failed_input = true;
  ResultLines lines([&](const Json& request) { return access.ask(request); }, selection);
  lines.fetch([&](std::string_view line) { file.add(line); });
  file.close();
  if (file.num_lines() == 0) {
    throw ToolError(kExitUsage, flags.job + " has no failed line that could be submitted again");
  }
  const auto failed = batch.at("request_counts").at("failed").get<std::uint64_t>();
  if (file.num_lines() < failed && !settings.quiet) {
    std::cerr << fmt::format("{} failed lines are left out: they were too long to be kept\n",
                             failed - file.num_lines());
  }
  access.release();

  Submission submission(flags_of(batch, file.path()));
  submission.set_key(key);
  submission.content_hash();
  Submission::Uploaded uploaded;
  {
    JobClient client = JobAccess(settings).new_client("batchmill resubmit");
    uploaded =
        submission.upload_or_say(client, std::chrono::seconds(*timeout_s), settings.quiet, command);
  }
  hint.stored(uploaded.job, settings);
  std::cout << uploaded.job << std::endl;
  if (!settings.quiet) {
    std::cerr << fmt::format("{} lines of {} {}\n", file.num_lines(), flags.job,
                             uploaded.existed ? "had been submitted again before" : "run again");
  }
  if (!flags.watch && !flags.wait) return kExitDone;
  const Json ended = watch_job(access, uploaded.job, settings.quiet || flags.wait, 60s);
  if (!settings.quiet) std::cerr << job_summary(ended);
  return job_exit_code(ended);
}

}  // namespace

void add_resubmit_command(CLI::App* app, const Settings* settings, Action* action) {
  CLI::App* command =
      add_command(app, "resubmit", "A new job of a job's failed lines; prints its id",
                  "batchmill resubmit batch_01jb2w4p8q6t3m9x5c7v0n1k2d --failed --watch");
  auto flags = std::make_shared<ResubmitFlags>();
  command->add_option("JOB", flags->job, "The job's id")->required();
  command->add_flag("--failed", flags->failed, "Its failed lines, as they were submitted");
  command
      ->add_option("--idempotency-key", flags->idempotency_key,
                   "The same key and lines again are the same job")
      ->type_name("KEY");
  command->add_option("--timeout", flags->timeout, "Try again this long without a daemon [60s]")
      ->type_name("DUR");
  CLI::Option* watch = command->add_flag("--watch", flags->watch, "Then follow it to its end");
  command->add_flag("--wait", flags->wait, "Then wait for its end without progress")
      ->excludes(watch);
  command->callback([=] { *action = [=] { return resubmit(*settings, *flags); }; });
}

}  // namespace batchmill
