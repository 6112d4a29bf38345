// Test data in JSON as values of a template.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/jinja_value.h"

namespace batchmill::testing {

// `is_marked`: strings count as text that came from a message. Keys keep their order.
inline jinja::Value to_jinja(const nlohmann::ordered_json& json, bool is_marked = true) {
  using jinja::Value;
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case nlohmann::ordered_json::value_t::number_integer:
    case nlohmann::ordered_json::value_t::number_unsigned:
      return Value::integer(std::string_view(json.dump()));
    case nlohmann::ordered_json::value_t::number_float:
      return Value::floating(json.get<double>());
    case nlohmann::ordered_json::value_t::string: {
      const auto& text = json.get_ref<const std::string&>();
      return is_marked ? Value::marked_string(text) : Value::string(text);
    }
    case nlohmann::ordered_json::value_t::array: {
      std::vector<Value> items;
      for (const auto& item : json) items.push_back(to_jinja(item, is_marked));
      return Value::list(std::move(items));
    }
    case nlohmann::ordered_json::value_t::object: {
      std::vector<std::pair<std::string, Value>> items;
      for (const auto& [key, value] : json.items()) {
        items.emplace_back(key, to_jinja(value, is_marked));
      }
      return Value::dict(std::move(items));
    }
    default:
      return Value::none();
  }
}

}  // namespace batchmill::testing
