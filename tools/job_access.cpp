#include "tools/job_access.h"

#include <fmt/format.h>

#include "config/data_directory.h"
#include "config/environment.h"
#include "queue/endpoint.h"
#include "tools/exit_code.h"

namespace batchmill {
namespace {

using namespace std::chrono_literals;
constexpr auto kAnswerTimeout = 10s;

int exit_code_of(const std::string& code) {
  return code == "no_such_job" || code == "no_such_line" ? kExitNotFound : kExitUsage;
}

// What a data directory without a store answers.
WireMessage nothing_stored(const Json& request, const std::string& directory) {
  WireMessage answer;
  const std::string what = request.at("what");
  if (request.contains("job")) {
    throw ToolError(kExitNotFound, fmt::format("there is no job {}: {} holds no store",
                                               request["job"].get<std::string>(), directory));
  }
  answer.header["op"] = "response";
  if (what == "list") {
    answer.header["batches"] = Json::array();
  } else {
    answer.header.update(Json{{"next", 0}, {"at_end", true}});
    answer.has_payload = true;
  }
  return answer;
}

}  // namespace

JobClient make_client(const std::string& endpoint, const std::string& client_name,
                      const DaemonConfig& config) {
  const std::string& file = config.queue.curve_client_key_file;
  const std::string& server = config.queue.curve_server_public_key;
  if (!is_tcp(endpoint) || (file.empty() && server.empty())) {
    return JobClient(endpoint, client_name);
  }
  if (file.empty() || server.empty()) {
    throw ConfigError(
        fmt::format("{}: keys come in twos: --key FILE with this client's secret key, "
                    "--server-key 'KEY' with the daemon's public one",
                    endpoint));
  }
  if (!is_curve_key(server)) {
    throw ConfigError(
        "--server-key: expected a public key of 40 characters, as `batchmill keys new "
        "--server` prints it");
  }
  return JobClient(endpoint, client_name, ClientKeys{server, read_secret_key(file)});
}

JobAccess::JobAccess(const Settings& settings) : config_(settings.load()) {
  data_directory_ = settings.data_directory(config_);
  endpoint_ = DataDirectory::control_endpoint(data_directory_);
  if (!settings.endpoint.empty()) {
    endpoint_ = settings.endpoint;
    endpoint_is_given_ = true;
  } else if (!config_.queue.endpoint.empty() && DataDirectory::holder(data_directory_) == 0) {
    // No daemon of this data directory runs here: the configured one may be elsewhere.
    endpoint_ = config_.queue.endpoint;
  }
}

JobAccess::~JobAccess() = default;

JobClient& JobAccess::client() {
  if (!client_) client_ = std::make_unique<JobClient>(new_client("batchmill"));
  return *client_;
}

JobClient JobAccess::new_client(const std::string& client_name) const {
  return make_client(endpoint_, client_name, config_);
}

void JobAccess::release() {
  queries_.reset();
  store_.reset();
  lock_.reset();
}

WireMessage JobAccess::ask_daemon(const Json& request, std::chrono::milliseconds timeout) {
  if (!endpoint_is_given_ && endpoint_ == DataDirectory::control_endpoint(data_directory_) &&
      DataDirectory::holder(data_directory_) == 0) {
    throw UnreachableError("no daemon runs on the data directory " + data_directory_);
  }
  WireMessage answer = client().request(request, timeout);
  answered_live_ = true;
  return answer;
}

JobAccess::Opened JobAccess::open_store() {
  if (queries_) return Opened::kYes;
  try {
    lock_ = std::make_unique<DataDirectory>(data_directory_, DataDirectory::Lock::kShared);
    store_ =
        JobStore::open(lock_->store_path(), config_.storage.options, JobStore::Mode::kReadOnly);
    queries_ = std::make_unique<Queries>(store_.get(), LiveJobs());
    return Opened::kYes;
  } catch (const StorageError& error) {
    release();
    if (error.kind() == StorageError::Kind::kLocked) return Opened::kHeld;
    if (error.kind() == StorageError::Kind::kMissing) return Opened::kNothingThere;
    throw;
  }
}

WireMessage JobAccess::ask_store(const Json& request) {
  WireMessage answer = queries_->answer(request);
  if (answer.header.at("op") == "error") {
    throw ToolError(exit_code_of(answer.header.at("code")), answer.header.at("message"));
  }
  answered_live_ = false;
  return answer;
}

WireMessage JobAccess::ask(const Json& request) {
  Json full = {{"op", "request"}};
  full.update(request);
  if (endpoint_is_given_) {
    return ask_daemon(full, kAnswerTimeout);
  }
  // A holder may end, or another one come, between the look at the lock and the question.
  for (int attempt = 0;; ++attempt) {
    const Opened opened = open_store();
    if (opened == Opened::kYes) return ask_store(full);
    if (opened == Opened::kNothingThere) {
      if (!config_.queue.endpoint.empty()) return ask_daemon(full, kAnswerTimeout);
      return nothing_stored(full, data_directory_);
    }
    const int pid = DataDirectory::holder(data_directory_);
    if (pid == 0 && attempt < 3) continue;
    try {
      endpoint_ = DataDirectory::control_endpoint(data_directory_);
      return ask_daemon(full, kAnswerTimeout);
    } catch (const UnreachableError&) {
      client_.reset();
      if (DataDirectory::holder(data_directory_) == 0 && attempt < 3) continue;
      throw ToolError(kExitStore,
                      fmt::format("the data directory {} is held by process {}, which does not "
                                  "answer (it may be starting)",
                                  data_directory_, pid));
    }
  }
}

}  // namespace batchmill
