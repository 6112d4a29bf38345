#include <iostream>

#include "tools/commands.h"
#include "tools/exit_code.h"
#include "tools/job_access.h"
#include "tools/status.h"

namespace batchmill {
namespace {

// An answer holds as many as there is room for in it.
std::vector<Json> list_jobs(JobAccess& access, const std::string& status, const std::string& after,
                            std::size_t limit) {
  std::vector<Json> batches;
  Json request = {{"what", "list"}};
  if (!status.empty()) request["status"] = status;
  if (!after.empty()) request["after"] = after;
  bool at_end = false;
  while (!at_end && batches.size() < limit) {
    request["limit"] = limit - batches.size();
    const Json answer = access.ask(request).header;
    const Json& page = answer.at("batches");
    batches.insert(batches.end(), page.begin(), page.end());
    at_end = page.empty() || answer.value("at_end", true);
    if (!batches.empty()) request["after"] = batches.back().at("id");
  }
  return batches;
}

}  // namespace

void add_list_command(CLI::App* app, const Settings* settings, Action* action) {
  CLI::App* command = add_command(app, "list", "Jobs, newest first",
                                  "batchmill list --status in_progress --limit 5");
  auto status = std::make_shared<std::string>();
  auto after = std::make_shared<std::string>();
  auto limit = std::make_shared<std::size_t>(20);
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
      const std::vector<Json> batches = list_jobs(access, *status, *after, *limit);
      if (settings->json) {
        for (const Json& batch : batches) std::cout << batch.dump() << '\n';
      } else {
        std::cout << jobs_table(batches);
      }
      return int{kExitDone};
    };
  });
}

}  // namespace batchmill
