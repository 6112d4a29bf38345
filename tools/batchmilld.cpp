// The daemon.
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <condition_variable>
#include <csignal>
#include <iostream>
#include <mutex>

#include "config/data_directory.h"
#include "tools/exit_code.h"
#include "tools/logging.h"
#include "tools/ready_notice.h"
#include "tools/served_models.h"
#include "tools/settings.h"
#include "tools/signals.h"

namespace batchmill {
namespace {

constexpr const char* kFooter =
    "SIGTERM, SIGINT: finish what runs, for at most [daemon] drain_timeout_s, then end; a second "
    "one ends at once.\nSIGHUP: read prices and log level again.\n\nExample:\n  batchmilld --model "
    "model.gguf --data /var/lib/batchmill";

// What the signal thread asks of the main thread.
class Requests {
 public:
  enum class What { kStop, kReload };

  void on_signal(int signal) {
    const std::lock_guard lock(mutex_);
    if (signal == SIGHUP) {
      reload_ = true;
    } else {
      if (stop_) exit_at_once(kExitInterrupted);
      stop_ = true;
    }
    changed_.notify_all();
  }
  What wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stop_ || reload_; });
    if (stop_) return What::kStop;
    reload_ = false;
    return What::kReload;
  }
  bool stopping() const {
    const std::lock_guard lock(mutex_);
    return stop_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  bool reload_ = false;
};

// A configuration that cannot be read leaves everything as it was.
void reload(const Settings& settings, std::vector<ServedModel>* models, Daemon* daemon) {
  try {
    const DaemonConfig config = settings.load();
    for (ServedModel& served : *models) served.price = price_of(config.prices, served.name);
    daemon->set_prices(*models);
    log_to_stderr(config.daemon.log_level);
    announce("prices and log level read again");
  } catch (const ConfigError& error) {
    announce(std::string("nothing was changed: ") + error.what());
  }
}

int serve(const Settings& settings) {
  ::umask(077);
  prepare_daemon_process();
  Requests requests;
  SignalThread signals({SIGINT, SIGTERM, SIGHUP},
                       [&](int signal, int) { requests.on_signal(signal); });
  const DaemonConfig config = settings.load();
  log_to_stderr(config.daemon.log_level);
  const std::string data = settings.data_directory(config);
  // Before a model is read: what other machines could reach without a key is not served.
  const std::vector<std::string> endpoints = served_endpoints(config, data);
  std::vector<ServedModel> models = open_models(config);
  make_private_directory(data);
  for (const std::string& endpoint : endpoints) prepare_endpoint(endpoint);

  const std::unique_ptr<Daemon> daemon =
      start_daemon(config, daemon_options(config, data, endpoints), models);
  if (!requests.stopping()) {
    std::cerr << fmt::format("batchmilld: ready, process {}, data {}, models {}, listening on {}\n",
                             ::getpid(), data,
                             fmt::join(
                                 [&] {
                                   std::vector<std::string> names;
                                   for (const ServedModel& served : models)
                                     names.push_back(served.name);
                                   return names;
                                 }(),
                                 ", "),
                             fmt::join(endpoints, ", "))
              << std::flush;
    if (!notify_service_manager("READY=1")) {
      std::cerr << "batchmilld: NOTIFY_SOCKET does not take messages" << std::endl;
    }
  }
  while (requests.wait() == Requests::What::kReload) {
    reload(settings, &models, daemon.get());
  }
  notify_service_manager("STOPPING=1");
  const std::int64_t drain_s = config.daemon.drain_timeout_s;
  spdlog::info(
      "stopping: no further line begins, {}; all others stay for the next start; a second signal "
      "ends at once",
      drain_s == 0 ? "those that run are put back"
                   : fmt::format("those that run may finish, all within {} s", drain_s));
  daemon->stop(std::chrono::seconds(drain_s));
  spdlog::info("stopped: the next start goes on with what has not finished");
  return kExitDone;
}

int run_daemon(int argc, char** argv) {
  CLI::App app("batchmilld: the batch inference daemon, in the foreground", "batchmilld");
  app.footer(kFooter);
  app.set_version_flag("--version", "batchmilld " BATCHMILL_VERSION);
  Settings settings;
  add_common_flags(&app, &settings);
  add_model_flags(&app, &settings);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int exit_code = app.exit(error) == 0 ? kExitDone : kExitUsage;
    check_standard_output();
    return exit_code;
  }
  return serve(settings);
}

}  // namespace
}  // namespace batchmill

int main(int argc, char** argv) {
  return batchmill::run_guarded("batchmilld", [&] { return batchmill::run_daemon(argc, argv); });
}
