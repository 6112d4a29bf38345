#include "engine/gguf_keys.h"

#include <cmath>

namespace batchmill {

std::int32_t GgufKeys::required(const std::string& key, std::int64_t most) const {
  const auto value = file_.integer(prefix_ + key);
  if (!value) file_.fail("metadata '" + prefix_ + key + "' is missing");
  return in_range(key, *value, most);
}

std::int32_t GgufKeys::integer(const std::string& key, std::int64_t otherwise,
                               std::int64_t most) const {
  return in_range(key, file_.integer(prefix_ + key).value_or(otherwise), most);
}

float GgufKeys::positive(const std::string& key, double otherwise) const {
  const double value = file_.number(prefix_ + key).value_or(otherwise);
  if (!(value > 0) || !std::isfinite(static_cast<float>(value))) {
    file_.fail("metadata '" + prefix_ + key + "' is " + std::to_string(value));
  }
  return static_cast<float>(value);
}

std::string GgufKeys::string(const std::string& key, const std::string& otherwise) const {
  return std::string(file_.string(prefix_ + key).value_or(otherwise));
}

bool GgufKeys::flag(const std::string& key, bool otherwise) const {
  return file_.boolean(prefix_ + key).value_or(otherwise);
}

std::int32_t GgufKeys::in_range(const std::string& key, std::int64_t value,
                                std::int64_t most) const {
  if (value < 1 || value > most) {
    file_.fail("metadata '" + prefix_ + key + "' is " + std::to_string(value) + ", outside 1 to " +
               std::to_string(most));
  }
  return static_cast<std::int32_t>(value);
}

}  // namespace batchmill
