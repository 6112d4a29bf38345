#include <iostream>

#include "tools/commands.h"
#include "tools/exit_code.h"
#include "tools/job_access.h"
#include "tools/status.h"

namespace batchmill {

void add_list_command(CLI::App* app, const Settings* settings, Action* action) {
  CLI::App* command = add_command(app, "list", "Jobs, newest first",
                                  "batchmill list --status in_progress --limit 5");
  auto status = std::make_shared<std::string>();
  auto after = std::make_shared<std::string>();
  auto limit = std::make_shared<int>(20);
  command->add_option("--status", *status, "Only jobs of this state")
      ->check(CLI::IsMember({"validating", "failed", "in_progress", "finalizing", "completed",
                             "expired", "cancelling", "cancelled"}));
  command->add_option("--after", *after, "Only jobs older than this one")->type_name("ID");
  command->add_option("--limit", *limit, "At most this many [20]")
      ->check(CLI::Range(1, 1'000))
      ->type_name("N");
  command->callback([=] {
    *action = [=] {
      JobAccess access(*settings);
      Json request = {{"what", "list"}, {"limit", *limit}};
      if (!status->empty()) request["status"] = *status;
      if (!after->empty()) request["after"] = *after;
      const Json batches = access.ask(request).header.at("batches");
      if (settings->json) {
        for (const Json& batch : batches) std::cout << batch.dump() << '\n';
      } else {
        std::cout << jobs_table(batches.get<std::vector<Json>>());
      }
      return int{kExitDone};
    };
  });
}

}  // namespace batchmill
