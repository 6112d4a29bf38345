// Everything that can be configured, and how it is read. Precedence: flag > environment variable
// BATCHMILL_SECTION_KEY > file > default. Flags are applied by the program with set(), after
// load_config(). Plain values; the program that loaded one owns it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/config_error.h"
#include "config/environment.h"
#include "config/price_list.h"
#include "engine/options.h"
#include "queue/options.h"
#include "storage/options.h"

namespace batchmill {

// [[model]]: a model that lines may name.
struct ModelConfigEntry {
  std::string name;  // what a line's "model" says
  std::vector<std::string> aliases;  // further names; "*" stands for any name
  std::string path;  // the GGUF file
  std::string dtype = "auto";  // weights and products: "auto", "f32", "bf16", "int8"
  std::string kv_dtype = "auto";  // KV cache: "auto", "f32", "bf16", "int8", "fp8"
  std::string device = "auto";  // "auto", "cpu", "cuda:N"
  std::int32_t max_context_tokens = 0;  // 0: what the model was trained for
};

// [queue]. `options.endpoints` stays empty here; queue_endpoints() (data_directory.h) makes it.
struct QueueConfig {
  std::string endpoint;  // empty: only the data directory's own control socket
  // Of a client that connects to a tcp:// endpoint which asks for keys.
  std::string curve_client_key_file;
  std::string curve_server_public_key;
  QueueOptions options;
};

// [storage]
struct StorageConfig {
  std::string path;  // the data directory; empty: data_directory() decides
  std::int64_t retention_s = 0;  // jobs that ended longer ago are removed; 0: never
  StorageOptions options;
};

// [engine]. `options` holds what the scheduler needs; context length and end tokens are the
// model's.
struct EngineConfig {
  EngineOptions options;
  std::int32_t block_size_tokens = 16;
  std::int64_t kv_cache_bytes = 0;  // per model; 0: what fits in memory
  std::int32_t default_max_tokens = 1024;
  std::int32_t max_choices = 128;
  bool deterministic = false;
  std::int32_t threads = 0;  // 0: every core that this process may use
};

// [daemon]
struct DaemonSettings {
  std::int64_t drain_timeout_s = 30;
  std::string log_level = "info";
};

struct DaemonConfig {
  QueueConfig queue;
  StorageConfig storage;
  std::vector<ModelConfigEntry> models;  // the first one is what "default" names
  ModelConfigEntry model_defaults;  // what add_model() starts from; set("model.…") fills it
  EngineConfig engine;
  PriceList prices;
  DaemonSettings daemon;
};

// Reads `file` (none: defaults), then applies the environment. Relative paths in the file are
// relative to the file's directory. Throws ConfigError.
DaemonConfig load_config(const std::optional<std::string>& file, const Environment& environment);

// Sets one key from text, as a flag does: set(config, "engine.threads", "4", "--threads"). Keys
// "model.dtype", "model.kv_dtype", "model.device" and "model.max_context_tokens" set every model.
// Lists are separated by commas. Throws ConfigError; its message begins with `origin`.
void set(DaemonConfig& config, const std::string& key, const std::string& value,
         const std::string& origin);

// Puts a model given by its path alone in front of the others, so "default" names it. Its name is
// the file's name without extension; `aliases` are further names. Throws ConfigError if a name is
// taken.
void add_model(DaemonConfig& config, const std::string& path,
               const std::vector<std::string>& aliases);

// A name or alias that two models share, or one model has twice.
std::optional<std::string> repeated_model_name(const DaemonConfig& config);

// Every key that can be set with the text of its value, in the order of the reference file.
std::vector<std::pair<std::string, std::string>> config_values(const DaemonConfig& config);

}  // namespace batchmill
