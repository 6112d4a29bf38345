#include <fmt/format.h>

#include <chrono>
#include <iostream>
#include <thread>

#include "tools/commands.h"
#include "tools/exit_code.h"
#include "tools/job_access.h"
#include "tools/output_file.h"
#include "tools/result_format.h"
#include "tools/result_lines.h"

namespace batchmill {
namespace {

using namespace std::chrono_literals;
constexpr auto kFollowInterval = 250ms;
constexpr auto kFollowPatience = 60s;

struct ResultsFlags {
  std::string job;
  std::string output;
  std::string errors;
  std::string failed_input;
  std::string custom_id;
  bool one = false;
  std::string order;
  std::string format = "jsonl";
  bool follow = false;
};

// Fetches once, or until the job has ended; survives restarts of the daemon.
void fetch_all(JobAccess& access, ResultLines& lines, OutputFile& output, bool follow,
               const std::function<void(std::string_view)>& sink) {
  auto last_answer = std::chrono::steady_clock::now();
  while (true) {
    try {
      const bool complete = lines.fetch(sink);
      output.flush();
      if (complete || !follow) return;
      access.release();
      if (access.answered_live()) last_answer = std::chrono::steady_clock::now();
    } catch (const UnreachableError&) {
      if (!follow) throw;
    } catch (const ToolError& error) {
      if (!follow || error.exit_code() != kExitStore) throw;
    }
    if (std::chrono::steady_clock::now() - last_answer > kFollowPatience) {
      throw ToolError(kExitUnreachable, "the job has not ended and no daemon answers for 60 s");
    }
    std::this_thread::sleep_for(kFollowInterval);
  }
}

int results(const Settings& settings, const ResultsFlags& flags) {
  if (flags.follow && flags.order == "input") {
    throw ToolError(kExitUsage, "--follow gives lines as they finish: --order input cannot be had");
  }
  if (!flags.output.empty()) check_output_path("-o", flags.output, {}, {});
  if (!flags.errors.empty()) check_output_path("--errors", flags.errors, {}, {flags.output});
  if (!flags.failed_input.empty()) {
    check_output_path("--failed-input", flags.failed_input, {}, {flags.output, flags.errors});
  }
  JobAccess access(settings);
  const Ask ask = [&](const Json& request) { return access.ask(request); };

  ResultSelection selection;
  selection.job = flags.job;
  selection.order = !flags.order.empty() ? flags.order : flags.follow ? "completed" : "input";
  selection.custom_id = flags.custom_id;
  selection.one = flags.one;
  const ResultFormat format = parse_result_format(flags.format);
  // A table has columns for failures, and whoever asks for one line wants it as it is.
  const bool mixed = format == ResultFormat::kCsv || flags.one;

  std::uint64_t failures = 0;
  // --failed-input alone writes nothing else.
  if (flags.failed_input.empty() || !flags.output.empty()) {
    selection.side = mixed ? "all" : "output";
    ResultLines lines(ask, selection);
    OutputFile output(flags.output);
    output.write(result_header(format));
    fetch_all(access, lines, output, flags.follow,
              [&](std::string_view line) { output.write(format_result(format, line)); });
    output.commit();
    failures = lines.counts().errors;
    if (flags.one && lines.counts().outputs + failures == 0) {
      throw ToolError(kExitNotFound,
                      fmt::format("line {} has not finished yet", Json(flags.custom_id).dump()));
    }
  }
  const auto write_side = [&](const std::string& path, bool failed_input) {
    selection.side = "errors";
    selection.failed_input = failed_input;
    ResultLines lines(ask, selection);
    OutputFile output(path);
    fetch_all(access, lines, output, false, [&](std::string_view line) {
      output.write(line);
      output.write("\n");
    });
    output.commit();
  };
  if (!flags.errors.empty()) write_side(flags.errors, false);
  if (!flags.failed_input.empty()) write_side(flags.failed_input, true);
  if (failures != 0 && !mixed && flags.errors.empty() && !settings.quiet) {
    std::cerr << failures << " failed lines left out (--errors FILE writes them)" << std::endl;
  }
  return kExitDone;
}

}  // namespace

void add_results_command(CLI::App* app, const Settings* settings, Action* action) {
  CLI::App* command = add_command(app, "results", "Result lines of a job, also while it runs",
                                  "batchmill results batch_01jb2w4p8q6t3m9x5c7v0n1k2d -o out.jsonl "
                                  "--errors failed.jsonl");
  auto flags = std::make_shared<ResultsFlags>();
  command->add_option("JOB", flags->job, "The job's id")->required();
  command->add_option("-o,--output", flags->output, "Write here instead of standard output")
      ->type_name("FILE");
  command->add_option("--errors", flags->errors, "Write failed lines here")->type_name("FILE");
  command
      ->add_option("--failed-input", flags->failed_input,
                   "Write the original lines of the failed ones here, for a second submit")
      ->type_name("FILE");
  CLI::Option* id =
      command->add_option("--custom-id", flags->custom_id, "Only this line")->type_name("ID");
  command->add_option("--order", flags->order, "input or completed [input]")
      ->check(CLI::IsMember({"input", "completed"}))
      ->type_name("ORDER");
  command->add_option("--format", flags->format, "jsonl, text or csv [jsonl]")
      ->check(CLI::IsMember({"jsonl", "text", "csv"}))
      ->type_name("FORMAT");
  command->add_flag("--follow", flags->follow, "Go on until the job ends");
  command->callback([=] {
    flags->one = id->count() != 0;
    *action = [=] { return results(*settings, *flags); };
  });
}

}  // namespace batchmill
