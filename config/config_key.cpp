#include "config/config_key.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "config/duration.h"

namespace batchmill {
namespace {

std::optional<std::int64_t> parse_integer(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), number);
  if (error != std::errc() || end != text.end()) return std::nullopt;
  return number;
}

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, comma - begin));
    begin = comma + 1;
  }
  return parts;
}

std::string shown(const ConfigValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* number = std::get_if<std::int64_t>(&value)) return std::to_string(*number);
  if (const auto* text = std::get_if<std::string>(&value)) return toml_text(*text);
  std::vector<std::string> parts;
  for (const std::string& part : std::get<std::vector<std::string>>(value)) {
    parts.push_back(toml_text(part));
  }
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

template <class Owner>
bool is_later_choice(const ConfigKey<Owner>& key, std::string_view text) {
  return std::any_of(key.later.begin(), key.later.end(), [&](std::string_view later) {
    return text.substr(0, text.find(':')) == later;
  });
}

template <class Owner>
bool is_choice(const ConfigKey<Owner>& key, std::string_view text) {
  const auto holds = [](const std::vector<std::string_view>& list, std::string_view name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  if (holds(key.choices, text) || holds(key.unlisted, text)) return true;
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos || !holds(key.numbered, text.substr(0, colon))) return false;
  const std::string_view number = text.substr(colon + 1);
  return !number.empty() && number.size() <= 3 &&
         number.find_first_not_of("0123456789") == std::string_view::npos;
}

// A port beyond 65535 would silently be another one; 0 and * are none that a client could name.
bool is_port(std::string_view text) {
  constexpr std::int64_t kMaxPort = 65'535;
  const bool digits = text.size() <= 5 && text.find_first_not_of("0123456789") == text.npos;
  const std::optional<std::int64_t> port = digits ? parse_integer(text) : std::nullopt;
  return port && *port >= 1 && *port <= kMaxPort;
}

bool is_endpoint(std::string_view text) {
  constexpr std::string_view kIpc = "ipc://";
  constexpr std::string_view kTcp = "tcp://";
  constexpr std::size_t kMaxSocketPathBytes = 107;
  if (text.starts_with(kIpc)) {
    text.remove_prefix(kIpc.size());
    return !text.empty() && text != "*" && text.size() <= kMaxSocketPathBytes;
  }
  if (!text.starts_with(kTcp)) return false;
  text.remove_prefix(kTcp.size());
  const std::size_t colon = text.rfind(':');
  if (colon == text.npos || colon == 0 || !is_port(text.substr(colon + 1))) return false;
  return std::ranges::none_of(text, [](unsigned char c) { return c <= ' ' || c == 0x7f; });
}

// The whole number that a kInteger, kDuration or kPrice value stands for.
std::optional<std::int64_t> number_of(KeyType type, const ConfigValue& value) {
  if (type == KeyType::kPrice) {
    const auto* text = std::get_if<std::string>(&value);
    return text != nullptr ? parse_token_price(*text) : std::nullopt;
  }
  if (const auto* number = std::get_if<std::int64_t>(&value)) return *number;
  const auto* text = std::get_if<std::string>(&value);
  if (type == KeyType::kDuration && text != nullptr) return parse_duration_s(*text);
  return std::nullopt;
}

template <class Owner>
void store_number(const ConfigKey<Owner>& key, std::int64_t number, Owner& owner) {
  if (const auto* small = std::get_if<std::int32_t& (*)(Owner&)>(&key.field)) {
    (*small)(owner) = static_cast<std::int32_t>(number);
  } else if (const auto* large = std::get_if<std::int64_t& (*)(Owner&)>(&key.field)) {
    (*large)(owner) = number;
  } else {
    std::get<std::uint64_t& (*)(Owner&)>(key.field)(owner) = static_cast<std::uint64_t>(number);
  }
}

template <class Owner>
std::int64_t load_number(const ConfigKey<Owner>& key, Owner& owner) {
  if (const auto* small = std::get_if<std::int32_t& (*)(Owner&)>(&key.field)) {
    return (*small)(owner);
  }
  if (const auto* large = std::get_if<std::int64_t& (*)(Owner&)>(&key.field)) {
    return (*large)(owner);
  }
  return static_cast<std::int64_t>(std::get<std::uint64_t& (*)(Owner&)>(key.field)(owner));
}

}  // namespace

std::string toml_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
          out += fmt::format("\\u{:04X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
        } else {
          out += c;
        }
    }
  }
  return out + '"';
}

void refuse_value(const ConfigPlace& place, const std::string& expected,
                  const std::string& shown_value) {
  throw ConfigError(
      fmt::format("{}: key '{}' {}, is {}", place.origin, place.key, expected, shown_value));
}

void refuse_later(const ConfigPlace& place) {
  throw ConfigError(
      fmt::format("{}: key '{}' is not supported yet; remove it", place.origin, place.key));
}

template <class Owner>
std::string expectation(const ConfigKey<Owner>& key) {
  switch (key.type) {
    case KeyType::kBool:
      return "must be true or false";
    case KeyType::kInteger:
      return fmt::format(
          "must be an integer from {} to {}{}", key.min, key.max,
          key.multiple_of > 1 ? fmt::format(", a multiple of {}", key.multiple_of) : "");
    case KeyType::kDuration:
      return fmt::format("must be whole seconds from {} to {} or a duration such as \"15m\"",
                         key.min, key.max);
    case KeyType::kText:
      return fmt::format("must be a text of {} to {} bytes", key.min, key.max);
    case KeyType::kPath:
      return "must be a path as text";
    case KeyType::kChoice: {
      std::vector<std::string> names;
      for (const std::string_view choice : key.choices) names.push_back(toml_text(choice));
      for (const std::string_view name : key.numbered) {
        names.push_back(toml_text(std::string(name) + ":N"));
      }
      return fmt::format("must be one of {}", fmt::join(names, ", "));
    }
    case KeyType::kEndpoint:
      return "must be ipc://PATH of at most 107 bytes or tcp://HOST:PORT with a port from 1 to "
             "65535";
    case KeyType::kTextList:
      return "must be a list of texts that are not empty";
    case KeyType::kPrice:
      return fmt::format(
          "must be a decimal text such as \"0.15\" with at most 6 decimals, at most "
          "{}",
          format_token_price(kMaxPrice));
    case KeyType::kLater:
      break;
  }
  return "is not supported yet";
}

template <class Owner>
void assign(const ConfigKey<Owner>& key, const ConfigValue& value, const ConfigPlace& place,
            Owner& owner) {
  const auto refuse = [&] { refuse_value(place, expectation(key), shown(value)); };
  switch (key.type) {
    case KeyType::kBool: {
      const auto* flag = std::get_if<bool>(&value);
      if (flag == nullptr) refuse();
      std::get<bool& (*)(Owner&)>(key.field)(owner) = *flag;
      return;
    }
    case KeyType::kInteger:
    case KeyType::kDuration:
    case KeyType::kPrice: {
      const std::optional<std::int64_t> number = number_of(key.type, value);
      if (!number || *number < key.min || *number > key.max || *number % key.multiple_of != 0) {
        refuse();
      }
      store_number(key, *number, owner);
      return;
    }
    case KeyType::kText:
    case KeyType::kPath:
    case KeyType::kEndpoint:
    case KeyType::kChoice: {
      const auto* text = std::get_if<std::string>(&value);
      if (text == nullptr || text->find('\0') != std::string::npos) refuse();
      if (key.type == KeyType::kText) {
        const auto size = static_cast<std::int64_t>(text->size());
        if (size < key.min || size > key.max) refuse();
      }
      if (key.type == KeyType::kEndpoint && !text->empty() && !is_endpoint(*text)) refuse();
      if (key.type == KeyType::kChoice) {
        if (is_later_choice(key, *text)) {
          throw ConfigError(fmt::format("{}: key '{}': {} is not supported yet; it {}",
                                        place.origin, place.key, toml_text(*text),
                                        expectation(key)));
        }
        if (!is_choice(key, *text)) refuse();
      }
      std::get<std::string& (*)(Owner&)>(key.field)(owner) = *text;
      return;
    }
    case KeyType::kTextList: {
      const auto* list = std::get_if<std::vector<std::string>>(&value);
      if (list == nullptr || std::find(list->begin(), list->end(), "") != list->end()) refuse();
      std::get<std::vector<std::string>& (*)(Owner&)>(key.field)(owner) = *list;
      return;
    }
    case KeyType::kLater:
      refuse_later(place);
  }
}

template <class Owner>
void assign_text(const ConfigKey<Owner>& key, const std::string& text, const ConfigPlace& place,
                 Owner& owner) {
  ConfigValue value = text;
  if (key.type == KeyType::kBool) {
    if (text == "true" || text == "1") value = true;
    if (text == "false" || text == "0") value = false;
  } else if (key.type == KeyType::kInteger || key.type == KeyType::kDuration) {
    if (const auto number = parse_integer(text)) value = *number;
  } else if (key.type == KeyType::kTextList) {
    value = split_list(text);
  }
  assign(key, value, place, owner);
}

template <class Owner>
std::string toml_value(const ConfigKey<Owner>& key, Owner owner) {
  switch (key.type) {
    case KeyType::kBool:
      return std::get<bool& (*)(Owner&)>(key.field)(owner) ? "true" : "false";
    case KeyType::kInteger:
      return std::to_string(load_number(key, owner));
    case KeyType::kDuration:
      return toml_text(format_duration_s(load_number(key, owner)));
    case KeyType::kPrice:
      return toml_text(format_token_price(load_number(key, owner)));
    case KeyType::kText:
    case KeyType::kPath:
    case KeyType::kEndpoint:
    case KeyType::kChoice:
      return toml_text(std::get<std::string& (*)(Owner&)>(key.field)(owner));
    case KeyType::kTextList:
      return shown(std::get<std::vector<std::string>& (*)(Owner&)>(key.field)(owner));
    case KeyType::kLater:
      break;
  }
  return "";
}

#define BATCHMILL_INSTANTIATE(Owner)                                                           \
  template std::string expectation<Owner>(const ConfigKey<Owner>&);                            \
  template void assign<Owner>(const ConfigKey<Owner>&, const ConfigValue&, const ConfigPlace&, \
                              Owner&);                                                         \
  template void assign_text<Owner>(const ConfigKey<Owner>&, const std::string&,                \
                                   const ConfigPlace&, Owner&);                                \
  template std::string toml_value<Owner>(const ConfigKey<Owner>&, Owner)
BATCHMILL_INSTANTIATE(DaemonConfig);
BATCHMILL_INSTANTIATE(ModelConfigEntry);
BATCHMILL_INSTANTIATE(TokenPrice);
#undef BATCHMILL_INSTANTIATE

}  // namespace batchmill
