#include "tools/commands.h"

namespace batchmill {

CLI::App* add_command(CLI::App* app, const std::string& name, const std::string& description,
                      const std::string& example) {
  CLI::App* command = app->add_subcommand(name, description);
  command->fallthrough();
  command->footer("Common options: see batchmill --help\n\nExample:\n  " + example);
  return command;
}

}  // namespace batchmill
