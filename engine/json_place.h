// A value inside a JSON file that knows where it stands, for readers whose errors name the place:
// "PATH: added_tokens[3].id: is not a number". Refers to the value; one thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace batchmill {

class JsonPlace {
 public:
  // Both must outlive the place.
  JsonPlace(const std::string* path, const nlohmann::json* value) : path_(path), value_(value) {}

  const nlohmann::json& value() const { return *value_; }
  bool is_null() const { return value_->is_null(); }
  bool is_object() const { return value_->is_object(); }
  bool is_string() const { return value_->is_string(); }
  bool is_array() const { return value_->is_array(); }

  // A member; one that is null if this is no object or has no such key.
  JsonPlace operator[](std::string_view key) const;
  // Elements; none if this is null. Throws if it is no array.
  std::vector<JsonPlace> elements() const;

  // The value. Each throws if it has another type; the latter two give `otherwise` for null.
  const std::string& string() const;
  std::string string_or(std::string_view otherwise) const;
  bool boolean_or(bool otherwise) const;
  std::int64_t integer() const;
  const nlohmann::json::object_t& object() const;

  // Throws std::runtime_error "PATH: place: why".
  [[noreturn]] void fail(const std::string& why) const;

 private:
  JsonPlace(const JsonPlace& parent, const nlohmann::json* value, std::string place)
      : path_(parent.path_), value_(value), place_(std::move(place)) {}

  const std::string* path_;
  const nlohmann::json* value_;
  std::string place_;
};

}  // namespace batchmill
