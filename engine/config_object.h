// Typed, checked access to one object of a model folder's JSON files. A value that is null counts
// as missing, as the software that writes these files means it. Borrows the value it reads.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace batchmill {

class ConfigObject {
 public:
  // `where` leads every message: "FOLDER/config.json", and the key of an inner object. Throws
  // std::runtime_error if `value` is no object.
  ConfigObject(const nlohmann::ordered_json* value, std::string where);

  bool has(const char* key) const;  // there, and not null
  bool names(const char* key) const { return value_.contains(key); }  // there, maybe null

  // Each throws std::runtime_error naming the key whose value has another type or lies outside the
  // range. Without `otherwise`, a missing value is an error too.
  std::int32_t integer(const char* key, std::int64_t least, std::int64_t most) const;
  std::int32_t integer(const char* key, std::int64_t least, std::int64_t most,
                       std::int32_t otherwise) const;
  std::optional<double> number(const char* key, double least, double most) const;
  float positive(const char* key) const;
  float positive(const char* key, float otherwise) const;
  bool boolean(const char* key, bool otherwise) const;
  std::string string(const char* key, const std::string& otherwise) const;
  std::optional<std::vector<std::string>> strings(const char* key) const;
  std::optional<ConfigObject> object(const char* key) const;

  [[noreturn]] void fail(const std::string& message) const;
  // "'KEY' is VALUE, which is not supported"
  [[noreturn]] void refuse(const char* key) const;

 private:
  const nlohmann::ordered_json* find(const char* key) const;
  [[noreturn]] void wrong_type(const char* key, const char* expected) const;

  const nlohmann::ordered_json& value_;
  std::string where_;
};

}  // namespace batchmill
