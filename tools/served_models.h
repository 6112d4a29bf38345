// From a configuration to what a Daemon is made of. Pure but for opening the model files.
#pragma once

#include <string>
#include <vector>

#include "actors/daemon.h"
#include "config/daemon_config.h"

namespace batchmill {

// Opens the configured models. Throws ToolError: kExitUsage (none is configured, a file is damaged
// or not supported), kExitNotFound (no such file).
std::vector<ServedModel> open_models(const DaemonConfig& config);

// Opens one model file, with the same errors.
std::shared_ptr<const Model> open_model(const std::string& path);

// What a model's tokens cost by the configuration.
Price price_of(const PriceList& prices, const std::string& model);

// What the daemon serves besides the control socket. Throws ConfigError, std::runtime_error or
// std::invalid_argument where other machines could reach it without a key, or a key cannot be used.
std::vector<std::string> served_endpoints(const DaemonConfig& config,
                                          const std::string& data_directory);

// Tables of prices that are for no configured model, as a warning; "" if there are none.
std::string unused_prices(const DaemonConfig& config);

// `endpoints`: what is served besides the control socket. When its actors cannot be kept alive the
// daemon ends the process (kExitStore).
DaemonOptions daemon_options(const DaemonConfig& config, const std::string& data_directory,
                             std::vector<std::string> endpoints);

// Makes a Daemon. Waits for a moment for queries that read the store at the same time; they hold
// the data directory only briefly.
std::unique_ptr<Daemon> start_daemon(const DaemonConfig& config, const DaemonOptions& options,
                                     const std::vector<ServedModel>& models);

}  // namespace batchmill
