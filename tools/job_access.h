// Answers questions about jobs from wherever they can be answered: the daemon at --endpoint, the
// process that holds the data directory (its control socket), or the store itself when nobody holds
// it. One thread.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "actors/queries.h"
#include "queue/job_client.h"
#include "storage/data_directory.h"
#include "tools/settings.h"

namespace batchmill {

// A client of the daemon at `endpoint`, with the keys that the configuration names if that is
// tcp://. Throws ConfigError if it names one of the two alone.
JobClient make_client(const std::string& endpoint, const std::string& client_name,
                      const DaemonConfig& config);

class JobAccess {
 public:
  explicit JobAccess(const Settings& settings);
  ~JobAccess();

  // The answer to a request of actors/queries.h. Throws ToolError: kExitNotFound (no such job, no
  // such line), kExitStore (the store is damaged, or its holder does not answer), kExitUnreachable
  // (--endpoint does not answer), kExitUsage.
  WireMessage ask(const Json& request);

  // As ask(), but only of a running daemon. Throws UnreachableError when there is none.
  WireMessage ask_daemon(const Json& request, std::chrono::milliseconds timeout);

  // Lets go of the store, so that a daemon can take it. The next ask() opens it again.
  void release();

  // Whether the last answer came from a running process.
  bool answered_live() const { return answered_live_; }
  // A client of the daemon at endpoint().
  JobClient new_client(const std::string& client_name) const;
  // Where a daemon is asked.
  const std::string& endpoint() const { return endpoint_; }
  const std::string& data_directory() const { return data_directory_; }
  const DaemonConfig& config() const { return config_; }

 private:
  enum class Opened { kYes, kHeld, kNothingThere };
  Opened open_store();
  WireMessage ask_store(const Json& request);
  JobClient& client();

  DaemonConfig config_;
  std::string data_directory_;
  std::string endpoint_;
  bool endpoint_is_given_ = false;
  bool answered_live_ = false;
  std::unique_ptr<JobClient> client_;
  std::unique_ptr<DataDirectory> lock_;
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<Queries> queries_;
};

}  // namespace batchmill
