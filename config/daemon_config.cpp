#include "config/daemon_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>

#include "config/config_key.h"
#include "config/toml_reader.h"

namespace batchmill {
namespace {

constexpr std::string_view kEnvironmentPrefix = "BATCHMILL_";
constexpr std::string_view kSections[] = {"queue",  "storage", "engine",
                                          "prices", "daemon",  "cluster"};
// Keys of [[model]] that make sense for every model at once.
constexpr std::string_view kCommonModelKeys[] = {"dtype", "kv_dtype", "device",
                                                 "max_context_tokens"};

bool is_common_model_key(std::string_view name) {
  return std::find(std::begin(kCommonModelKeys), std::end(kCommonModelKeys), name) !=
         std::end(kCommonModelKeys);
}

// "engine.threads" → "BATCHMILL_ENGINE_THREADS"
std::string environment_name(std::string_view key) {
  std::string name(kEnvironmentPrefix);
  for (const char c : key) {
    name += c == '.' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

// Every key that the environment can set.
std::vector<std::string> environment_keys() {
  std::vector<std::string> names;
  for (const auto& key : config_keys()) names.emplace_back(key.name);
  for (const std::string_view name : kCommonModelKeys)
    names.push_back(fmt::format("model.{}", name));
  return names;
}

// A misspelt variable would otherwise be ignored.
void refuse_unknown_variables(const Environment& environment, const std::set<std::string>& known) {
  for (const auto& [name, value] : environment) {
    if (value.empty() || known.contains(name)) continue;
    for (const std::string_view section : kSections) {
      if (name.starts_with(environment_name(section) + "_")) {
        throw ConfigError(
            fmt::format("environment variable {}: no such key in section [{}]", name, section));
      }
    }
  }
}

void apply_environment(const Environment& environment, DaemonConfig& config) {
  std::set<std::string> known;
  for (const std::string& key : environment_keys()) {
    const std::string variable = environment_name(key);
    known.insert(variable);
    if (const auto value = lookup(environment, variable)) {
      set(config, key, *value, "environment variable " + variable);
    }
  }
  refuse_unknown_variables(environment, known);
}

std::vector<std::string> names_of(const ModelConfigEntry& model) {
  std::vector<std::string> names = {model.name};
  names.insert(names.end(), model.aliases.begin(), model.aliases.end());
  return names;
}

}  // namespace

DaemonConfig load_config(const std::optional<std::string>& file, const Environment& environment) {
  DaemonConfig config;
  if (file) read_toml(*file, environment, config);
  apply_environment(environment, config);
  return config;
}

void set(DaemonConfig& config, const std::string& key, const std::string& value,
         const std::string& origin) {
  const ConfigPlace place{origin, key};
  for (const auto& row : config_keys()) {
    if (row.name == key) return assign_text(row, value, place, config);
  }
  for (const auto& row : model_keys()) {
    if (!is_common_model_key(row.name) || key != fmt::format("model.{}", row.name)) continue;
    assign_text(row, value, place, config.model_defaults);
    for (ModelConfigEntry& model : config.models) assign_text(row, value, place, model);
    return;
  }
  throw ConfigError(fmt::format("{}: unknown key '{}'", origin, key));
}

void add_model(DaemonConfig& config, const std::string& path,
               const std::vector<std::string>& aliases) {
  ModelConfigEntry model = config.model_defaults;
  model.path = path;
  model.name = std::filesystem::path(path).stem().string();
  model.aliases = aliases;
  if (model.name.empty()) throw ConfigError(fmt::format("--model: '{}' names no file", path));
  config.models.insert(config.models.begin(), std::move(model));
  if (const auto taken = repeated_model_name(config)) {
    config.models.erase(config.models.begin());
    throw ConfigError(fmt::format("--model: '{}' is the name of more than one model", *taken));
  }
}

std::optional<std::string> repeated_model_name(const DaemonConfig& config) {
  std::set<std::string> seen;
  for (const ModelConfigEntry& model : config.models) {
    for (const std::string& name : names_of(model)) {
      if (!seen.insert(name).second) return name;
    }
  }
  return std::nullopt;
}

std::vector<std::pair<std::string, std::string>> config_values(const DaemonConfig& config) {
  std::vector<std::pair<std::string, std::string>> values;
  for (const auto& key : config_keys()) {
    if (key.type != KeyType::kLater) {
      values.emplace_back(std::string(key.name), toml_value(key, config));
    }
  }
  for (const ModelConfigEntry& model : config.models) {
    for (const auto& key : model_keys()) {
      values.emplace_back(fmt::format("model.{}", key.name), toml_value(key, model));
    }
  }
  const auto add_prices = [&](const std::string& table, const TokenPrice& price) {
    for (const auto& key : price_keys()) {
      values.emplace_back(fmt::format("prices.{}.{}", table, key.name), toml_value(key, price));
    }
  };
  add_prices("default", config.prices.default_price);
  for (const auto& [name, price] : config.prices.models) add_prices(toml_text(name), price);
  return values;
}

}  // namespace batchmill
