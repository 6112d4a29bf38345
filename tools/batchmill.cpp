// The command-line tool.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <string_view>

#include "queue/json_reader.h"
#include "tools/commands.h"
#include "tools/exit_code.h"
#include "tools/logging.h"
#include "tools/settings.h"
#include "tools/submission.h"

namespace batchmill {
namespace {

constexpr const char* kFooter =
    "Exit codes: 0 done, 1 the job has failed lines, 2 wrong usage or refused input, 3 no daemon "
    "answers,\n4 no such job, line or model, 5 the store is locked, damaged or full, 130 "
    "interrupted.\n\nExample:\n  batchmill run requests.jsonl -o out.jsonl --model model.gguf";

// Commands that the contract with users names and this program does not have.
constexpr const char* kNotBuilt[] = {"summarize"};

// Options whose values go into a job, a request or the file of allowed clients.
constexpr const char* kTexts[] = {"name", "idempotency-key", "metadata", "custom-id",
                                  "served-model-name"};

// The parser would say of a word that is no command that a command is missing, and of its --help
// nothing at all.
void refuse_unknown_commands(const CLI::App& app, int argc, char** argv) {
  const CLI::App* command = &app;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.starts_with("-")) {
      const CLI::Option* option = app.get_option_no_throw(word.substr(0, word.find('=')));
      if (option == nullptr) return;  // the parser names it
      if (option->get_items_expected_min() > 0 && word.find('=') == word.npos) ++i;  // its value
      continue;
    }
    for (const char* name : kNotBuilt) {
      if (word == name) throw ToolError(kExitUsage, word + " is not built yet");
    }
    const std::string before = command == &app ? "" : command->get_name() + " ";
    const std::vector<const CLI::App*> found =
        command->get_subcommands([&](const CLI::App* each) { return each->check_name(word); });
    if (found.empty()) {
      throw ToolError(kExitUsage, "there is no command '" + before + word + "'; batchmill " +
                                      before + "--help names them");
    }
    command = found.front();
    if (command->get_subcommands(nullptr).empty()) return;
  }
}

// `-o "$OUT"` with an unset variable would silently mean something else.
void refuse_empty_values(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_name(true) == "JOB" && option->count() != 0 &&
        option->results().front().empty()) {
      throw ToolError(kExitUsage, "JOB is empty: it names no job");
    }
    if (option->get_positional() || option->check_lname("name") ||
        option->check_lname("custom-id")) {
      continue;
    }
    for (const std::string& value : option->results()) {
      if (value.empty()) {
        throw ToolError(kExitUsage, option->get_name() + " is given without a value");
      }
    }
  }
}

// They are kept as text, and text is UTF-8: two that are none would become the same one.
void refuse_broken_text(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (!std::ranges::any_of(kTexts, [&](const char* name) { return option->check_lname(name); })) {
      continue;
    }
    for (const std::string& value : option->results()) {
      std::string_view rest = value;
      while (const std::size_t length = utf8_sequence_length(rest)) rest.remove_prefix(length);
      if (!rest.empty()) {
        throw ToolError(kExitUsage, fmt::format("{}: the bytes from {} on are no UTF-8",
                                                option->get_name(), value.size() - rest.size()));
      }
    }
  }
}

void refuse_bad_values(const CLI::App& app) {
  refuse_empty_values(app);
  refuse_broken_text(app);
  for (const CLI::App* command : app.get_subcommands()) refuse_bad_values(*command);
}

std::string command_line(int argc, char** argv) {
  std::string line;
  for (int i = 0; i < argc; ++i) {
    if (i != 0) line += " ";
    line += shell_quoted(argv[i]);
  }
  return line;
}

int run_tool(int argc, char** argv) {
  CLI::App app("batchmill: batch inference from JSONL to JSONL", "batchmill");
  app.footer(kFooter);
  app.set_version_flag("--version", "batchmill " BATCHMILL_VERSION);
  app.require_subcommand(1);
  Settings settings;
  settings.command_line = command_line(argc, argv);
  add_common_flags(&app, &settings);
  app.add_option("--endpoint", settings.endpoint, "Where the daemon answers [its data directory]")
      ->type_name("URL")
      ->group("Common");
  app.add_option("--key", settings.key_file, "Secret key, for an endpoint that asks for one")
      ->type_name("FILE")
      ->group("Common");
  app.add_option("--server-key", settings.server_key, "The public key of the daemon there")
      ->type_name("KEY")
      ->group("Common");
  app.add_flag("--json", settings.json, "Machine output on standard output")->group("Common");
  app.add_flag("--quiet", settings.quiet, "No progress, no remarks")->group("Common");

  Action action;
  add_submit_command(&app, &settings, &action);
  add_run_command(&app, &settings, &action);
  add_status_command(&app, &settings, &action);
  add_list_command(&app, &settings, &action);
  add_watch_command(&app, &settings, &action);
  add_results_command(&app, &settings, &action);
  add_costs_command(&app, &settings, &action);
  add_control_commands(&app, &settings, &action);
  add_explain_command(&app, &settings, &action);
  add_tokenize_command(&app, &settings, &action);
  add_render_command(&app, &settings, &action);
  add_estimate_command(&app, &settings, &action);
  add_inspect_command(&app, &settings, &action);
  add_doctor_command(&app, &settings, &action);
  add_resubmit_command(&app, &settings, &action);
  add_care_commands(&app, &settings, &action);
  add_restore_command(&app, &settings, &action);
  add_keys_command(&app, &settings, &action);
  add_bench_command(&app, &settings, &action);
  refuse_unknown_commands(app, argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int exit_code = app.exit(error) == 0 ? kExitDone : kExitUsage;
    check_standard_output();
    return exit_code;
  }
  refuse_bad_values(app);
  const int exit_code = action();
  check_standard_output();
  return exit_code;
}

}  // namespace
}  // namespace batchmill

int main(int argc, char** argv) {
  batchmill::log_to_stderr("warn");  // standard output is for data
  return batchmill::run_guarded("batchmill", [&] { return batchmill::run_tool(argc, argv); });
}
