#include "tools/served_models.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <system_error>
#include <thread>
#include <utility>

#include "config/config_key.h"
#include "config/data_directory.h"
#include "config/environment.h"
#include "queue/allowed_clients.h"
#include "queue/curve_keys.h"
#include "queue/endpoint.h"
#include "storage/data_directory.h"
#include "storage/job_store.h"
#include "tools/devices.h"
#include "tools/exit_code.h"
#include "tools/signals.h"
#include "tools/thread_limit.h"

namespace batchmill {
namespace {

using namespace std::chrono_literals;
constexpr auto kReaderPatience = 10s;
constexpr std::int64_t kOwnFiles = 256;  // model, log, sockets, event descriptors
constexpr std::int64_t kFewestConnections = 8;

// The store's files and the process's own come first; clients get what is left. Each may have one
// that waits behind it.
std::int32_t connections_that_fit(const DaemonConfig& config) {
  const std::int64_t wanted = config.queue.options.max_connections;
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY) {
    return config.queue.options.max_connections;
  }
  const auto limit = static_cast<std::int64_t>(files.rlim_cur);
  const std::int64_t reserved = config.storage.options.max_open_files + kOwnFiles;
  const std::int64_t fit = std::min(wanted, (limit - reserved) / 2);
  if (fit < std::min(wanted, kFewestConnections)) {
    throw ToolError(kExitUsage,
                    fmt::format("{} open files are allowed, too few for the store ({}, [storage] "
                                "max_open_files) and clients: raise the limit (ulimit -n)",
                                limit, config.storage.options.max_open_files));
  }
  if (fit < wanted) {
    spdlog::warn(
        "at most {} clients are served, not [queue] max_connections {}: {} open files are "
        "allowed",
        fit, wanted, limit);
  }
  return static_cast<std::int32_t>(fit);
}

// What a daemon starts at most: CAF's, those that compute (its own and OpenMP's), those that
// prepare, and a few each of CAF, ZeroMQ, RocksDB and for each device.
std::size_t num_threads_of(const DaemonConfig& config) {
  constexpr std::size_t kOwnThreads = 24;
  constexpr std::size_t kPerModel = 2;
  const std::size_t cores = std::max(4u, std::thread::hardware_concurrency());
  const auto given = static_cast<std::size_t>(std::max(config.engine.threads, 0));
  const std::size_t computing = given > 0 ? given : cores;
  return cores + 2 * computing + kPerModel * config.models.size() + kOwnThreads;
}

}  // namespace

std::shared_ptr<const Model> open_model(const std::string& path) {
  try {
    return Model::open(path);
  } catch (const std::system_error& error) {
    const bool missing = error.code() == std::errc::no_such_file_or_directory ||
                         error.code() == std::errc::not_a_directory;
    throw ToolError(missing ? kExitNotFound : kExitUsage,
                    fmt::format("cannot open the model {}: {}", path, error.code().message()));
  } catch (const std::exception& error) {
    throw ToolError(kExitUsage, fmt::format("the model cannot be used: {}", error.what()));
  }
}

Price price_of(const PriceList& prices, const std::string& model) {
  const TokenPrice& tokens = prices.price_of(model);
  Price price;
  price.version = prices.version;
  price.currency = prices.currency;
  price.input = tokens.input;
  price.cached_input = tokens.cached_input;
  price.output = tokens.output;
  return price;
}

std::vector<ServedModel> open_models(const DaemonConfig& config) {
  if (config.models.empty()) {
    throw ToolError(kExitUsage,
                    "no model: give --model PATH or a configuration with a [[model]] table");
  }
  if (const std::string unused = unused_prices(config); !unused.empty()) {
    spdlog::warn("{}", unused);
  }
  std::vector<ServedModel> models;
  for (const ModelConfigEntry& entry : config.models) {
    ServedModel served;
    served.name = entry.name;
    served.aliases = entry.aliases;
    served.model = open_model(entry.path);
    served.max_context_tokens = entry.max_context_tokens;
    served.price = price_of(config.prices, entry.name);
    models.push_back(std::move(served));
  }
  return models;
}

std::vector<std::string> served_endpoints(const DaemonConfig& config,
                                          const std::string& data_directory) {
  std::vector<std::string> endpoints =
      queue_endpoints(config, data_directory, process_environment());
  const std::string key_file = server_key_file(config, data_directory);
  if (!key_file.empty()) read_secret_key(key_file);
  for (const std::string& endpoint : endpoints) {
    check_served_endpoint(endpoint, !key_file.empty());
  }
  AllowedClients{allowed_clients_file(config, data_directory)};
  return endpoints;
}

std::string unused_prices(const DaemonConfig& config) {
  std::string unused;
  for (const auto& [name, price] : config.prices.models) {
    const bool is_used = std::ranges::any_of(
        config.models, [&](const ModelConfigEntry& model) { return model.name == name; });
    if (!is_used)
      unused += fmt::format("{}[prices.{}]", unused.empty() ? "" : ", ", toml_text(name));
  }
  return unused.empty() ? ""
                        : unused + ": no configured model has this name, the price is not used";
}

DaemonOptions daemon_options(const DaemonConfig& config, const std::string& data_directory,
                             std::vector<std::string> endpoints) {
  check_thread_limit(num_threads_of(config));
  DaemonOptions options;
  options.data_directory = data_directory;
  options.storage = config.storage.options;
  options.retention_s = config.storage.retention_s;
  options.queue = config.queue.options;
  options.queue.endpoints = std::move(endpoints);
  options.queue.max_connections = connections_that_fit(config);
  options.queue.curve_secret_key_file = server_key_file(config, data_directory);
  options.queue.allowed_clients_file = allowed_clients_file(config, data_directory);
  options.engine = config.engine.options;
  options.default_max_tokens = config.engine.default_max_tokens;
  options.max_choices = config.engine.max_choices;
  options.replace_lost = make_replacement(config);
  options.on_fatal = [](const std::string& reason) {
    std::cerr << "batchmill: the daemon cannot go on, what is stored stays: " << reason
              << std::endl;
    exit_at_once(kExitStore);
  };
  return options;
}

std::unique_ptr<Daemon> start_daemon(const DaemonConfig& config, const DaemonOptions& options,
                                     const std::vector<ServedModel>& models) {
  const auto give_up = std::chrono::steady_clock::now() + kReaderPatience;
  while (true) {
    try {
      return std::make_unique<Daemon>(options, models, make_devices(config, models));
    } catch (const StorageError& error) {
      const bool reader = error.kind() == StorageError::Kind::kLocked &&
                          DataDirectory::holder(options.data_directory) == 0;
      if (!reader || std::chrono::steady_clock::now() > give_up) throw;
      std::this_thread::sleep_for(20ms);
    }
  }
}

}  // namespace batchmill
