#include "engine/json_place.h"

#include <stdexcept>

namespace batchmill {
namespace {

const nlohmann::json kNull;

}  // namespace

JsonPlace JsonPlace::operator[](std::string_view key) const {
  std::string place = place_.empty() ? std::string(key) : place_ + "." + std::string(key);
  const nlohmann::json* member = &kNull;
  if (value_->is_object()) {
    const auto found = value_->find(std::string(key));
    if (found != value_->end()) member = &*found;
  }
  return JsonPlace(*this, member, std::move(place));
}

std::vector<JsonPlace> JsonPlace::elements() const {
  std::vector<JsonPlace> places;
  if (is_null()) return places;
  if (!value_->is_array()) fail("is not a list");
  for (const nlohmann::json& element : *value_) {
    places.push_back(
        JsonPlace(*this, &element, place_ + "[" + std::to_string(places.size()) + "]"));
  }
  return places;
}

const std::string& JsonPlace::string() const {
  if (!value_->is_string()) fail("is not a string");
  return value_->get_ref<const std::string&>();
}

std::string JsonPlace::string_or(std::string_view otherwise) const {
  return is_null() ? std::string(otherwise) : string();
}

bool JsonPlace::boolean_or(bool otherwise) const {
  if (is_null()) return otherwise;
  if (!value_->is_boolean()) fail("is neither true nor false");
  return value_->get<bool>();
}

std::int64_t JsonPlace::integer() const {
  // Larger unsigned ones would not fit.
  if (!value_->is_number_integer() ||
      (value_->is_number_unsigned() && value_->get<std::uint64_t>() > INT64_MAX)) {
    fail("is not an integer");
  }
  return value_->get<std::int64_t>();
}

const nlohmann::json::object_t& JsonPlace::object() const {
  if (!value_->is_object()) fail("is not an object");
  return value_->get_ref<const nlohmann::json::object_t&>();
}

void JsonPlace::fail(const std::string& why) const {
  throw std::runtime_error(*path_ + ": " + (place_.empty() ? "" : place_ + ": ") + why);
}

}  // namespace batchmill
