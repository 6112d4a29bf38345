#include "engine/gguf.h"

#include <cstring>
#include <limits>
#include <stdexcept>

namespace batchmill {
namespace {

template <typename T>
T load(const std::byte* source) {
  T value;
  std::memcpy(&value, source, sizeof(T));
  return value;
}

template <typename T>
std::vector<std::int64_t> widen(const GgufArray& array) {
  std::vector<std::int64_t> values(array.size);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<std::int64_t>(load<T>(array.bytes.data() + i * sizeof(T)));
  }
  return values;
}

std::string wrong_type(std::string_view key, const char* wanted) {
  return "metadata '" + std::string(key) + "' is not " + wanted;
}

}  // namespace

void GgufFile::fail(const std::string& message) const {
  throw std::runtime_error(path_ + ": " + message);
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = metadata_.find(key);
  return found == metadata_.end() ? nullptr : &found->second;
}

std::optional<std::int64_t> GgufFile::integer(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* number = std::get_if<std::int64_t>(&value->value)) return *number;
  if (const auto* number = std::get_if<std::uint64_t>(&value->value)) {
    if (*number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      fail("metadata '" + std::string(key) + "' is too large");
    }
    return static_cast<std::int64_t>(*number);
  }
  fail(wrong_type(key, "an integer"));
}

std::optional<double> GgufFile::number(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* number = std::get_if<double>(&value->value)) return *number;
  if (const auto* number = std::get_if<std::int64_t>(&value->value)) {
    return static_cast<double>(*number);
  }
  if (const auto* number = std::get_if<std::uint64_t>(&value->value)) {
    return static_cast<double>(*number);
  }
  fail(wrong_type(key, "a number"));
}

std::optional<bool> GgufFile::boolean(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* flag = std::get_if<bool>(&value->value)) return *flag;
  fail(wrong_type(key, "a bool"));
}

std::optional<std::string_view> GgufFile::string(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* text = std::get_if<std::string_view>(&value->value)) return *text;
  fail(wrong_type(key, "a string"));
}

std::optional<std::vector<std::string_view>> GgufFile::strings(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto* array = std::get_if<GgufArray>(&value->value);
  if (array == nullptr || array->element_type != GgufType::kString) {
    fail(wrong_type(key, "an array of strings"));
  }
  std::vector<std::string_view> values;
  values.reserve(array->size);
  const std::byte* next = array->bytes.data();
  for (std::uint64_t i = 0; i < array->size; ++i) {
    const auto length = load<std::uint64_t>(next);
    values.emplace_back(reinterpret_cast<const char*>(next + 8), length);
    next += 8 + length;
  }
  return values;
}

std::optional<std::vector<std::int64_t>> GgufFile::integers(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* array = std::get_if<GgufArray>(&value->value)) {
    switch (array->element_type) {
      case GgufType::kUint8:
        return widen<std::uint8_t>(*array);
      case GgufType::kInt8:
        return widen<std::int8_t>(*array);
      case GgufType::kUint16:
        return widen<std::uint16_t>(*array);
      case GgufType::kInt16:
        return widen<std::int16_t>(*array);
      case GgufType::kUint32:
        return widen<std::uint32_t>(*array);
      case GgufType::kInt32:
        return widen<std::int32_t>(*array);
      case GgufType::kUint64:
        return widen<std::uint64_t>(*array);
      case GgufType::kInt64:
        return widen<std::int64_t>(*array);
      default:
        break;
    }
  }
  fail(wrong_type(key, "an array of integers"));
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

const GgufTensor& GgufFile::tensor(std::string_view name) const {
  const GgufTensor* found = find_tensor(name);
  if (found == nullptr) fail("tensor '" + std::string(name) + "' is missing");
  return *found;
}

}  // namespace batchmill
