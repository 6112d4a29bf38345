#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <mutex>

#include "config/data_directory.h"
#include "queue/content_hash.h"
#include "storage/job_store.h"
#include "tools/commands.h"
#include "tools/exit_code.h"
#include "tools/job_end.h"
#include "tools/logging.h"
#include "tools/output_file.h"
#include "tools/progress.h"
#include "tools/result_lines.h"
#include "tools/served_models.h"
#include "tools/signals.h"
#include "tools/submission.h"

namespace batchmill {
namespace {

using namespace std::chrono_literals;
constexpr auto kAnswerTimeout = 60s;

struct RunFlags {
  SubmissionFlags submission;
  std::string output;
  std::string errors;
  std::string order = "input";
};

// Thrown through an upload to end it.
struct Interrupted {};

// What the signal thread and the run share. Before the daemon runs and once the job has ended
// nothing has to be put in order, so a signal ends the process; in between the first one only asks.
class Interruption {
 public:
  explicit Interruption(std::string command) : command_(std::move(command)) {}

  void on_signal() {
    if (!graceful_ || asked_.exchange(true)) {
      std::cerr << "\n" << hint() << std::endl;
      exit_at_once(kExitInterrupted);
    }
    { const std::lock_guard lock(mutex_); }
    changed_.notify_all();
  }
  void set_graceful(bool graceful) {
    graceful_ = graceful;
    started_ = true;
  }
  bool asked() const { return asked_; }
  // Sleeps, but not past a signal.
  void wait_for(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, time, [this] { return asked_.load(); });
  }
  std::string hint() const {
    return fmt::format("batchmill: interrupted{} the same command goes on:\n  {}",
                       started_ ? "; finished lines are kept," : " before a line ran;", command_);
  }

 private:
  std::string command_;
  std::atomic<bool> started_{false};  // the daemon runs, or has run
  std::atomic<bool> graceful_{false};
  std::atomic<bool> asked_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
};

void check_outputs(const Settings& settings, const RunFlags& flags) {
  check_output_path("-o", flags.output, {flags.submission.file}, {});
  if (!flags.errors.empty()) {
    check_output_path("--errors", flags.errors, {flags.submission.file}, {flags.output});
  }
  if (settings.json && flags.output == "-") {
    throw ToolError(kExitUsage, "--json and -o - both write to standard output");
  }
  for (const std::string& path : {flags.output, flags.errors}) {
    if (path.empty() || path == "-") continue;
    std::filesystem::path folder = std::filesystem::path(path).parent_path();
    if (folder.empty()) folder = ".";
    if (::access(folder.c_str(), W_OK) != 0) {
      throw ToolError(kExitStore, fmt::format("cannot write into the folder {}", folder.string()));
    }
  }
}

// The job's content, the models' fingerprints and every option that can change a result.
std::string identity(const std::string& content, const DaemonConfig& config,
                     const std::vector<ServedModel>& models, const SubmissionFlags& flags) {
  ContentHasher hasher;
  const auto add = [&](const std::string& text) { hasher.update(text + '\0'); };
  add(content);
  for (std::size_t i = 0; i < models.size(); ++i) {
    const ModelConfigEntry& entry = config.models[i];
    add(models[i].model->fingerprint());
    add(entry.name);
    for (const std::string& alias : entry.aliases) add(alias);
    add("dtype");
    add(entry.dtype);
    add(entry.kv_dtype);
    add(entry.device);
    add(std::to_string(entry.max_context_tokens));
  }
  add("options");
  add(std::to_string(config.engine.default_max_tokens));
  add(std::to_string(config.engine.max_choices));
  add(std::to_string(config.engine.kv_cache_bytes));
  add(std::to_string(config.queue.options.max_line_bytes));
  add(config.engine.deterministic ? "deterministic" : "");
  add(flags.strict ? "strict" : "");
  return "run-" + hasher.hex();
}

std::string all_fingerprints(const std::vector<ServedModel>& models) {
  std::string text;
  for (const ServedModel& served : models) {
    if (!text.empty()) text += ",";
    text += served.model->fingerprint();
  }
  return text;
}

class EmbeddedJob {
 public:
  EmbeddedJob(const Daemon& daemon, Interruption* interruption)
      : interruption_(interruption), client_(daemon.control_endpoint(), "batchmill run") {}

  void upload(Submission* submission, bool quiet) {
    result_ = submission->upload(client_, kAnswerTimeout, [this](std::uint64_t) {
      if (interruption_->asked()) throw Interrupted();
    });
    if (!result_.kept.empty() && !quiet) std::cerr << result_.kept << std::endl;
    if (!result_.truncated.empty()) std::cerr << result_.truncated << std::endl;
  }

  const std::string& id() const { return result_.job; }
  bool existed() const { return result_.existed; }

  WireMessage ask(const Json& request) {
    Json full = {{"op", "request"}};
    full.update(request);
    return client_.request(full, kAnswerTimeout);
  }
  Json batch() { return ask({{"what", "status"}, {"job", id()}}).header.at("batch"); }

  Json wait_for_end(bool quiet) {
    Progress progress(quiet);
    auto interval = 5ms;
    while (true) {
      Json now = batch();
      if (has_ended(now) || interruption_->asked()) {
        progress.clear();
        return now;
      }
      progress.show(now);
      interruption_->wait_for(interval);
      interval = std::min(interval * 2, 250ms);
    }
  }

 private:
  Interruption* interruption_;
  JobClient client_;
  Submission::Uploaded result_;
};

// Both files are written whole before either gets its name.
void write_results(EmbeddedJob* job, const RunFlags& flags) {
  const Ask ask = [job](const Json& request) { return job->ask(request); };
  const auto write_side = [&](OutputFile* file, const char* side) {
    ResultSelection selection;
    selection.job = job->id();
    selection.order = flags.order;
    selection.side = side;
    ResultLines lines(ask, selection);
    lines.fetch([&](std::string_view line) {
      file->write(line);
      file->write("\n");
    });
  };
  OutputFile output(flags.output);
  write_side(&output, "output");
  if (!flags.errors.empty()) {
    OutputFile errors(flags.errors);
    write_side(&errors, "errors");
    output.flush();
    errors.commit();
  }
  output.commit();
}

void tell_end(const Json& batch, const RunFlags& flags, bool finished_before) {
  std::cerr << job_summary(batch);
  if (finished_before) {
    std::cerr << "it had finished before; its results are written again (--fresh computes anew)\n";
  }
  const auto failed = batch.at("request_counts").at("failed").get<std::uint64_t>();
  if (failed != 0 && flags.errors.empty()) {
    std::cerr << failed << " failed lines left out (--errors FILE writes them)\n";
  }
  std::cerr << std::flush;
}

int run(const Settings& settings, const RunFlags& flags) {
  prepare_daemon_process();
  check_outputs(settings, flags);
  Interruption interruption(settings.command_line);
  SignalThread signals({SIGINT, SIGTERM}, [&](int, int) { interruption.on_signal(); });
  const DaemonConfig config = settings.load();
  log_to_stderr(settings.quiet ? "error" : "warn");
  Submission submission(flags.submission);
  const std::vector<ServedModel> models = open_models(config);
  std::string key = flags.submission.idempotency_key;
  if (key.empty()) key = identity(submission.content_hash(), config, models, flags.submission);
  if (flags.submission.fresh) key += "-" + random_key();
  submission.content_hash();
  submission.set_key(key);
  submission.set_model_fingerprint(all_fingerprints(models));

  const std::string data = settings.data_directory(config);
  make_private_directory(data);
  DaemonOptions options = daemon_options(config, data, {});
  // Somebody waits for this command's end: a full disk ends it, and the same command goes on later.
  options.on_storage_full = [&](const std::string& reason) {
    std::cerr << fmt::format("batchmill: {}\n{}", reason, interruption.hint()) << std::endl;
    exit_at_once(kExitStore);
  };
  options.on_fatal = options.on_storage_full;
  // So does a device that only another process can use again.
  options.on_lines_wait = [&](const std::string& trouble) {
    std::cerr << fmt::format("batchmill: {}\n{}", trouble, interruption.hint()) << std::endl;
    exit_at_once(kExitStore);
  };
  const std::unique_ptr<Daemon> daemon = start_daemon(config, options, models);
  interruption.set_graceful(true);
  Json batch;
  EmbeddedJob job(*daemon, &interruption);
  bool finished_before = false;
  try {
    job.upload(&submission, settings.quiet);
    finished_before = job.existed() && has_ended(job.batch());
    batch = job.wait_for_end(settings.quiet);
  } catch (const Interrupted&) {
  }
  if (batch.is_null() || !has_ended(batch)) {
    daemon->stop(0ms);
    if (!batch.is_null()) std::cerr << job.id() << ": " << progress_text(batch) << '\n';
    std::cerr << interruption.hint() << std::endl;
    return kExitInterrupted;
  }
  interruption.set_graceful(false);
  if (!settings.quiet) tell_end(batch, flags, finished_before);
  write_results(&job, flags);
  if (settings.json) std::cout << batch.dump() << std::endl;
  daemon->stop(0ms);
  return job_exit_code(batch);
}

}  // namespace

void add_run_command(CLI::App* app, Settings* settings, Action* action) {
  CLI::App* command =
      add_command(app, "run", "Do a whole job in this process; goes on after a kill",
                  "batchmill run requests.jsonl -o out.jsonl --errors failed.jsonl "
                  "--model model.gguf");
  auto flags = std::make_shared<RunFlags>();
  add_submission_flags(command, &flags->submission,
                       "Compute anew, even if the same job is there already");
  command->add_option("-o,--output", flags->output, "Where results go, replaced at the end")
      ->required()
      ->type_name("OUT");
  command->add_option("--errors", flags->errors, "Where failed lines go")->type_name("ERR");
  command->add_option("--order", flags->order, "input or completed [input]")
      ->check(CLI::IsMember({"input", "completed"}))
      ->type_name("ORDER");
  add_model_flags(command, settings);
  command->callback([=] { *action = [=] { return run(*settings, *flags); }; });
}

}  // namespace batchmill
