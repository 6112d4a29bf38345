#include <iostream>

#include "tools/commands.h"
#include "tools/exit_code.h"
#include "tools/job_access.h"
#include "tools/printable.h"

namespace batchmill {
namespace {

void print_flat(const Json& object, const std::string& prefix) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_object()) {
      print_flat(value, prefix + key + ".");
    } else {
      const std::string text = value.is_null()     ? "-"
                               : value.is_string() ? value.get<std::string>()
                                                   : value.dump();
      std::cout << prefix << key << ": " << printable(text) << '\n';
    }
  }
}

}  // namespace

void add_explain_command(CLI::App* app, const Settings* settings, Action* action) {
  CLI::App* command = add_command(app, "explain", "The life of one line of a job",
                                  "batchmill explain batch_01jb2w4p8q6t3m9x5c7v0n1k2d request-17");
  auto job = std::make_shared<std::string>();
  auto custom_id = std::make_shared<std::string>();
  auto number = std::make_shared<std::int64_t>(0);
  command->add_option("JOB", *job, "The job's id")->required();
  CLI::Option* id = command->add_option("CUSTOM_ID", *custom_id, "The line's custom_id");
  command->add_option("--line", *number, "The line's number in the file instead")
      ->check(CLI::PositiveNumber)
      ->excludes(id)
      ->type_name("N");
  command->callback([=] {
    if (id->count() == 0 && *number == 0) {
      throw ToolError(kExitUsage, "explain: name the line by its custom_id or by --line N");
    }
    *action = [=] {
      JobAccess access(*settings);
      Json request = {{"what", "explain"}, {"job", *job}};
      if (*number != 0) {
        request["line"] = *number;
      } else {
        request["custom_id"] = *custom_id;
      }
      Json line;
      while (line.is_null()) {
        const Json answer = access.ask(request).header;
        line = answer.at("line");
        request["from"] = answer.value("next", Json());  // where the search goes on
      }
      if (settings->json) {
        std::cout << line.dump() << std::endl;
      } else {
        print_flat(line, "");
      }
      return int{kExitDone};
    };
  });
}

}  // namespace batchmill
