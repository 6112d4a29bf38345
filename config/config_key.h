// One key of the configuration: its name, type, range, meaning and the field it fills. The tables
// of all keys (config_keys()) are the only description there is: checking, the environment, flags
// and config/batchmill.toml are made from them. Internal to config/.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/daemon_config.h"

namespace batchmill {

enum class KeyType {
  kBool,
  kInteger,  // min … max
  kDuration,  // seconds, min … max; also "30s", "15m", "24h", "7d"
  kText,  // min … max bytes
  kPath,  // text; relative to the file that holds it; "~/" is the home directory
  kChoice,  // one of `choices`
  kEndpoint,  // ipc://PATH or tcp://HOST:PORT, or empty
  kTextList,  // texts that are not empty
  kPrice,  // decimal text per 1,000,000 tokens
  kLater,  // known, but not supported yet: setting it is refused
};

template <class Owner>
struct ConfigKey {
  using Field = std::variant<std::monostate, bool& (*)(Owner&), std::int32_t& (*)(Owner&),
                             std::int64_t& (*)(Owner&), std::uint64_t& (*)(Owner&),
                             std::string& (*)(Owner&), std::vector<std::string>& (*)(Owner&)>;

  std::string_view name{};  // "engine.threads"; within [[model]] and price tables the last part
  KeyType type = KeyType::kLater;
  Field field{};
  std::int64_t min = 0;
  std::int64_t max = 0;
  std::int64_t multiple_of = 1;  // kInteger
  std::vector<std::string_view> choices{};  // kChoice
  std::vector<std::string_view> numbered{};  // kChoice: "x:0", "x:1", … are choices too
  std::vector<std::string_view> unlisted{};  // kChoice: accepted, but not for everyone
  std::vector<std::string_view> later{};  // kChoice: refused as not supported yet, also "x:…"
  std::string_view unit{};  // may be empty
  std::string_view meaning{};  // full sentences
};

// A value before it is checked against its key.
using ConfigValue = std::variant<bool, std::int64_t, std::string, std::vector<std::string>>;

// Where a value was written, for messages.
struct ConfigPlace {
  std::string origin;  // "FILE:LINE", "environment variable X", "--flag"
  std::string key;  // full name, "engine.threads"
};

// "must be an integer from 1 to 4096"
template <class Owner>
std::string expectation(const ConfigKey<Owner>& key);

[[noreturn]] void refuse_value(const ConfigPlace& place, const std::string& expected,
                               const std::string& shown_value);
[[noreturn]] void refuse_later(const ConfigPlace& place);

// Checks the value and stores it, or throws ConfigError.
template <class Owner>
void assign(const ConfigKey<Owner>& key, const ConfigValue& value, const ConfigPlace& place,
            Owner& owner);

// Reads text from the environment or a flag as the key's type, then as assign().
template <class Owner>
void assign_text(const ConfigKey<Owner>& key, const std::string& text, const ConfigPlace& place,
                 Owner& owner);

// The field's present value as TOML.
template <class Owner>
std::string toml_value(const ConfigKey<Owner>& key, Owner owner);

// A text as TOML's basic string, quotes included.
std::string toml_text(std::string_view text);

const std::vector<ConfigKey<DaemonConfig>>& config_keys();  // all but models and price tables
const std::vector<ConfigKey<ModelConfigEntry>>& model_keys();  // of [[model]]
const std::vector<ConfigKey<TokenPrice>>& price_keys();  // of [prices.default], [prices."M"]

}  // namespace batchmill
