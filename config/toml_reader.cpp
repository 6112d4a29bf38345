#include "config/toml_reader.h"

#include <fmt/format.h>

#include <toml++/toml.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "config/config_key.h"

namespace batchmill {
namespace {

// Enough for thousands of models and prices; what has no end, such as a device, is not read on.
constexpr std::size_t kMaxFileBytes = 1 << 20;

std::string describe(const toml::node& node) {
  if (node.is_table()) return "a table";
  if (node.is_array()) return "a list";
  if (const auto* text = node.as_string()) return toml_text(text->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{:#}", number->get());
  std::ostringstream out;
  node.visit([&](const auto& value) {
    if constexpr (toml::is_value<decltype(value)>) out << value;
  });
  return out.str();
}

// The value of a node that a key may have; absent for types that no key has (floats, dates,
// tables).
std::optional<ConfigValue> value_of(const toml::node& node) {
  if (const auto* flag = node.as_boolean()) return flag->get();
  if (const auto* number = node.as_integer()) return number->get();
  if (const auto* text = node.as_string()) return text->get();
  const auto* list = node.as_array();
  if (list == nullptr) return std::nullopt;
  std::vector<std::string> texts;
  for (const toml::node& element : *list) {
    const auto* text = element.as_string();
    if (text == nullptr) return std::nullopt;
    texts.push_back(text->get());
  }
  return texts;
}

template <class Owner>
const ConfigKey<Owner>* find_key(const std::vector<ConfigKey<Owner>>& rows, std::string_view name) {
  const auto row = std::find_if(rows.begin(), rows.end(),
                                [&](const auto& candidate) { return candidate.name == name; });
  return row == rows.end() ? nullptr : &*row;
}

class Reader {
 public:
  Reader(std::string file, const Environment& environment)
      : file_(std::move(file)), environment_(environment) {}

  void read(DaemonConfig& config) {
    const toml::table root = parse();
    for (const auto& [key, node] : root) {
      const std::string name(key.str());
      if (name == "model") {
        read_models(node, line_of(key), config);
      } else if (is_section(name)) {
        read_section(name, table_at(node, line_of(key), name), config);
      } else {
        refuse_unknown(line_of(key), name);
      }
    }
  }

 private:
  toml::table parse() const {
    std::ifstream in(file_, std::ios::binary);
    std::string text(kMaxFileBytes + 1, '\0');
    // Opening a directory succeeds; reading it does not.
    if (in) in.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (!in.is_open() || in.bad()) {
      throw ConfigError(fmt::format("{}: cannot be read: {}", file_, std::strerror(errno)));
    }
    text.resize(static_cast<std::size_t>(in.gcount()));
    if (text.size() > kMaxFileBytes) {
      throw ConfigError(
          fmt::format("{}: a configuration holds at most {} bytes", file_, kMaxFileBytes));
    }
    try {
      return toml::parse(text, file_);
    } catch (const toml::parse_error& error) {
      throw ConfigError(fmt::format("{}:{}: not valid TOML: {}", file_, error.source().begin.line,
                                    error.description()));
    }
  }

  static bool is_section(std::string_view name) {
    for (const auto& key : config_keys()) {
      if (key.name.substr(0, key.name.find('.')) == name) return true;
    }
    return false;
  }

  static std::uint32_t line_of(const toml::key& key) { return key.source().begin.line; }

  std::string origin(std::uint32_t line) const { return fmt::format("{}:{}", file_, line); }

  [[noreturn]] void refuse_unknown(std::uint32_t line, const std::string& key) const {
    throw ConfigError(fmt::format("{}: unknown key '{}'", origin(line), key));
  }

  const toml::table& table_at(const toml::node& node, std::uint32_t line,
                              const std::string& name) const {
    if (const auto* table = node.as_table()) return *table;
    refuse_value({origin(line), name}, fmt::format("must be a table ([{}])", name), describe(node));
  }

  template <class Owner>
  void read_value(const ConfigKey<Owner>& row, const toml::node& node, const ConfigPlace& place,
                  Owner& owner) const {
    if (row.type == KeyType::kLater) refuse_later(place);
    const std::optional<ConfigValue> value = value_of(node);
    if (!value) refuse_value(place, expectation(row), describe(node));
    assign(row, *value, place, owner);
    if (row.type == KeyType::kPath) {
      std::string& path = std::get<std::string& (*)(Owner&)>(row.field)(owner);
      path = resolved(path, place);
    }
  }

  // "~/x" → HOME/x; a relative path lies beside the configuration file.
  std::string resolved(const std::string& path, const ConfigPlace& place) const {
    if (path.empty()) return path;
    if (path == "~" || path.starts_with("~/")) {
      const auto home = lookup(environment_, "HOME");
      if (!home) refuse_value(place, "needs HOME to be set", toml_text(path));
      return *home + path.substr(1);
    }
    return (std::filesystem::path(file_).parent_path() / path).lexically_normal().string();
  }

  void read_section(const std::string& section, const toml::table& table, DaemonConfig& config) {
    bool priced = false;
    for (const auto& [key, node] : table) {
      const ConfigPlace place{origin(line_of(key)), section + "." + std::string(key.str())};
      const auto* row = find_key(config_keys(), place.key);
      if (row != nullptr) {
        read_value(*row, node, place, config);
      } else if (section == "prices" && node.is_table()) {
        TokenPrice& price = key.str() == "default" ? config.prices.default_price
                                                   : config.prices.models[std::string(key.str())];
        priced = read_prices(*node.as_table(), place.key, price) || priced;
      } else {
        refuse_unknown(line_of(key), place.key);
      }
    }
    if (priced && !table.contains("version")) {
      throw ConfigError(fmt::format("{}: key 'prices.version' must be given, since prices are",
                                    origin(table.source().begin.line)));
    }
  }

  // True if a price is not zero.
  bool read_prices(const toml::table& table, const std::string& name, TokenPrice& price) const {
    for (const auto& [key, node] : table) {
      const ConfigPlace place{origin(line_of(key)), fmt::format("{}.{}", name, key.str())};
      const auto* row = find_key(price_keys(), key.str());
      if (row == nullptr) refuse_unknown(line_of(key), place.key);
      read_value(*row, node, place, price);
    }
    if (!table.contains("cached_input")) price.cached_input = price.input;
    return price.input != 0 || price.cached_input != 0 || price.output != 0;
  }

  void read_models(const toml::node& node, std::uint32_t line, DaemonConfig& config) const {
    const auto* list = node.as_array();
    if (list == nullptr || (!list->empty() && !list->is_homogeneous<toml::table>())) {
      refuse_value({origin(line), "model"}, "must be a list of tables ([[model]])", describe(node));
    }
    for (const toml::node& element : *list) {
      const toml::table& table = *element.as_table();
      ModelConfigEntry model = config.model_defaults;
      for (const auto& [key, value] : table) {
        const ConfigPlace place{origin(line_of(key)), fmt::format("model.{}", key.str())};
        const auto* row = find_key(model_keys(), key.str());
        if (row == nullptr) refuse_unknown(line_of(key), place.key);
        read_value(*row, value, place, model);
      }
      const std::string where = origin(table.source().begin.line);
      for (const std::string_view required : {"name", "path"}) {
        if (!table.contains(required)) {
          throw ConfigError(fmt::format("{}: key 'model.{}' is missing", where, required));
        }
      }
      config.models.push_back(std::move(model));
      if (const auto repeated = repeated_model_name(config)) {
        throw ConfigError(fmt::format(
            "{}: key 'model.name': '{}' is the name of more than one model", where, *repeated));
      }
    }
  }

  std::string file_;
  const Environment& environment_;
};

}  // namespace

void read_toml(const std::string& file, const Environment& environment, DaemonConfig& config) {
  Reader(file, environment).read(config);
}

}  // namespace batchmill
