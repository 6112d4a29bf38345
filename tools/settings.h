// The flags that both programs share, and the configuration that comes out of them: flag >
// environment > file > default. Filled by CLI11 while the command line is read; main owns it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "actors/daemon.h"
#include "config/daemon_config.h"

namespace batchmill {

struct Settings {
  // As given on the command line; empty: not given.
  std::string config_file;
  std::string data;
  std::string model;
  std::vector<std::string> served_model_names;
  std::string device;
  std::string threads;
  std::string dtype;
  std::string kv_dtype;
  bool deterministic = false;
  std::string endpoint;
  std::string key_file;  // the client's own secret key
  std::string server_key;  // the public key of the daemon at the endpoint
  bool json = false;
  bool quiet = false;
  std::string command_line;  // as a shell reads it

  // The configuration with environment and flags applied. Throws ConfigError.
  DaemonConfig load() const;
  // The data directory, absolute.
  std::string data_directory(const DaemonConfig& config) const;
};

// --config, --data, --device, --threads, --dtype, --kv-dtype, --deterministic.
void add_common_flags(CLI::App* app, Settings* settings);
// --model and --served-model-name.
void add_model_flags(CLI::App* app, Settings* settings);

// For a process that holds a store: as many open files as the hard limit allows, no core, and a
// closed pipe does not end it.
void prepare_daemon_process();

}  // namespace batchmill
