// The subcommands of `batchmill`, one source file each. add_NAME_command puts a subcommand into the
// application; when it is the one that was called, `*action` becomes what main runs, and its result
// is the exit code.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "tools/settings.h"

namespace batchmill {

using Action = std::function<int()>;

void add_submit_command(CLI::App* app, const Settings* settings, Action* action);
void add_run_command(CLI::App* app, Settings* settings, Action* action);
void add_status_command(CLI::App* app, const Settings* settings, Action* action);
void add_list_command(CLI::App* app, const Settings* settings, Action* action);
void add_watch_command(CLI::App* app, const Settings* settings, Action* action);
void add_results_command(CLI::App* app, const Settings* settings, Action* action);
void add_costs_command(CLI::App* app, const Settings* settings, Action* action);
void add_control_commands(CLI::App* app, const Settings* settings, Action* action);
void add_explain_command(CLI::App* app, const Settings* settings, Action* action);
void add_tokenize_command(CLI::App* app, Settings* settings, Action* action);
void add_render_command(CLI::App* app, Settings* settings, Action* action);
void add_estimate_command(CLI::App* app, Settings* settings, Action* action);
void add_inspect_command(CLI::App* app, Settings* settings, Action* action);
void add_doctor_command(CLI::App* app, Settings* settings, Action* action);
void add_care_commands(CLI::App* app, const Settings* settings, Action* action);
void add_restore_command(CLI::App* app, const Settings* settings, Action* action);
void add_keys_command(CLI::App* app, const Settings* settings, Action* action);
void add_resubmit_command(CLI::App* app, const Settings* settings, Action* action);
void add_bench_command(CLI::App* app, Settings* settings, Action* action);

// A subcommand that takes the application's common options too and ends its help with an example.
CLI::App* add_command(CLI::App* app, const std::string& name, const std::string& description,
                      const std::string& example);

}  // namespace batchmill
