#include "actors/json_bridge.h"

#include <utility>
#include <vector>

namespace batchmill {

jinja::Value to_jinja(const Json& json) {
  switch (json.type()) {
    case Json::value_t::boolean:
      return jinja::Value::boolean(json.get<bool>());
    case Json::value_t::number_integer:
      return jinja::Value::integer(json.get<std::int64_t>());
    case Json::value_t::number_unsigned: {
      const auto value = json.get<std::uint64_t>();
      return value <= INT64_MAX ? jinja::Value::integer(static_cast<std::int64_t>(value))
                                : jinja::Value::floating(static_cast<double>(value));
    }
    case Json::value_t::number_float:
      return jinja::Value::floating(json.get<double>());
    case Json::value_t::string:
      return jinja::Value::marked_string(json.get_ref<const std::string&>());
    case Json::value_t::array: {
      std::vector<jinja::Value> items;
      items.reserve(json.size());
      for (const Json& item : json) items.push_back(to_jinja(item));
      return jinja::Value::list(std::move(items));
    }
    case Json::value_t::object: {
      std::vector<std::pair<std::string, jinja::Value>> items;
      items.reserve(json.size());
      for (const auto& [key, value] : json.items()) items.emplace_back(key, to_jinja(value));
      return jinja::Value::dict(std::move(items));
    }
    default:
      return jinja::Value::none();
  }
}

}  // namespace batchmill
