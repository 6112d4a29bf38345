#include "config/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "config/config_key.h"

namespace batchmill {
namespace {

constexpr std::size_t kLineWidth = 100;

// `text` as comment lines, broken between words.
void append_comment(std::string& out, std::string_view text) {
  std::string line(1, '#');
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    if (line.size() + 1 + word.size() > kLineWidth) {
      out += line + "\n";
      line.assign(1, '#');
    }
    line += " ";
    line += word;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  out += line + "\n";
}

// "(bytes; an integer from 1 to 9; default 3)"
template <class Owner>
std::string facts(const ConfigKey<Owner>& key, const std::string& default_value) {
  std::string text = "(";
  if (!key.unit.empty()) text += fmt::format("{}; ", key.unit);
  std::string expected = expectation(key);
  if (expected.starts_with("must be ")) expected.erase(0, std::string_view("must be ").size());
  return text + fmt::format("{}; default {})", expected, default_value);
}

template <class Owner>
void append_key(std::string& out, const ConfigKey<Owner>& key, const Owner& defaults,
                std::string_view prefix) {
  const std::string_view name = key.name.substr(key.name.rfind('.') + 1);
  if (key.type == KeyType::kLater) {
    append_comment(out, fmt::format("{}: not supported yet. {}", name, key.meaning));
    out += "\n";
    return;
  }
  const std::string value = toml_value(key, defaults);
  append_comment(out, fmt::format("{} {}", key.meaning, facts(key, value)));
  out += fmt::format("{}{} = {}\n\n", prefix, name, value);
}

void append_models(std::string& out) {
  append_comment(out,
                 "One table for each model; without any, programs take --model PATH. Below as a "
                 "comment, since no model is configured by default.");
  out += "# [[model]]\n";
  ModelConfigEntry defaults;
  for (const auto& key : model_keys()) append_key(out, key, defaults, "# ");
}

void append_prices(std::string& out) {
  append_comment(out,
                 "Prices of models without a table of their own. Such a table is named after the "
                 "model: [prices.\"MODEL\"].");
  out += "[prices.default]\n";
  for (const auto& key : price_keys()) append_key(out, key, TokenPrice{}, "");
}

}  // namespace

std::string reference_config() {
  std::string out;
  append_comment(out,
                 "batchmill's configuration: every key with its default. Give a file like this one "
                 "with --config FILE; keys that it leaves out have their defaults. Environment "
                 "variables go before it (BATCHMILL_ENGINE_THREADS=4 for threads in [engine]), "
                 "flags before both.");
  out += "\n";
  const DaemonConfig defaults;
  std::string_view section;
  for (const auto& key : config_keys()) {
    const std::string_view next = key.name.substr(0, key.name.find('.'));
    if (next != section) {
      if (section == "prices") append_prices(out);
      if (section == "storage") append_models(out);
      section = next;
      out += fmt::format("[{}]\n", section);
    }
    append_key(out, key, defaults, "");
  }
  out.pop_back();  // the blank line after the last key
  return out;
}

}  // namespace batchmill
