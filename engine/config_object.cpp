#include "engine/config_object.h"

#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

namespace batchmill {
namespace {

constexpr std::size_t kMaxShownBytes = 200;

std::string shown(const nlohmann::ordered_json& value) {
  std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text.size() > kMaxShownBytes) text = text.substr(0, kMaxShownBytes) + "…";
  return text;
}

}  // namespace

ConfigObject::ConfigObject(const nlohmann::ordered_json* value, std::string where)
    : value_(*value), where_(std::move(where)) {
  if (!value_.is_object()) fail("not an object");
}

void ConfigObject::fail(const std::string& message) const {
  throw std::runtime_error(where_ + ": " + message);
}

void ConfigObject::refuse(const char* key) const {
  const nlohmann::ordered_json* value = find(key);
  fail("'" + std::string(key) + "' is " + (value == nullptr ? "missing" : shown(*value)) +
       ", which is not supported");
}

void ConfigObject::wrong_type(const char* key, const char* expected) const {
  fail("'" + std::string(key) + "' is " + shown(*find(key)) + ", not " + expected);
}

const nlohmann::ordered_json* ConfigObject::find(const char* key) const {
  const auto found = value_.find(key);
  return found == value_.end() || found->is_null() ? nullptr : &*found;
}

bool ConfigObject::has(const char* key) const { return find(key) != nullptr; }

std::int32_t ConfigObject::integer(const char* key, std::int64_t least, std::int64_t most) const {
  const nlohmann::ordered_json* value = find(key);
  if (value == nullptr) fail("'" + std::string(key) + "' is missing");
  if (!value->is_number_integer()) wrong_type(key, "a whole number");
  const bool huge = value->is_number_unsigned() &&
                    value->get<std::uint64_t>() >
                        static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  const std::int64_t number = huge ? 0 : value->get<std::int64_t>();
  if (huge || number < least || number > most) {
    fail("'" + std::string(key) + "' is " + shown(*value) + ", outside " + std::to_string(least) +
         " to " + std::to_string(most));
  }
  return static_cast<std::int32_t>(number);
}

std::int32_t ConfigObject::integer(const char* key, std::int64_t least, std::int64_t most,
                                   std::int32_t otherwise) const {
  return has(key) ? integer(key, least, most) : otherwise;
}

std::optional<double> ConfigObject::number(const char* key, double least, double most) const {
  const nlohmann::ordered_json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) wrong_type(key, "a number");
  const auto number = value->get<double>();
  if (!(number >= least && number <= most)) {
    fail("'" + std::string(key) + "' is " + shown(*value) + ", out of range");
  }
  return number;
}

float ConfigObject::positive(const char* key) const {
  const auto value = number(key, std::numeric_limits<float>::min(),
                            static_cast<double>(std::numeric_limits<float>::max()));
  if (!value) fail("'" + std::string(key) + "' is missing");
  return static_cast<float>(*value);
}

float ConfigObject::positive(const char* key, float otherwise) const {
  return has(key) ? positive(key) : otherwise;
}

bool ConfigObject::boolean(const char* key, bool otherwise) const {
  const nlohmann::ordered_json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) wrong_type(key, "true or false");
  return value->get<bool>();
}

std::string ConfigObject::string(const char* key, const std::string& otherwise) const {
  const nlohmann::ordered_json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_string()) wrong_type(key, "a text");
  return value->get<std::string>();
}

std::optional<std::vector<std::string>> ConfigObject::strings(const char* key) const {
  const nlohmann::ordered_json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) wrong_type(key, "a list of texts");
  std::vector<std::string> texts;
  for (const auto& item : *value) {
    if (!item.is_string()) wrong_type(key, "a list of texts");
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

std::optional<ConfigObject> ConfigObject::object(const char* key) const {
  const nlohmann::ordered_json* value = find(key);
  if (value == nullptr) return std::nullopt;
  return ConfigObject(value, where_ + ": " + key);
}

}  // namespace batchmill
