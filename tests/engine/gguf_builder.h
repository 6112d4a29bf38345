// Writes GGUF files for tests, right or wrong on purpose.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "engine/gguf.h"

namespace batchmill::testing {

class GgufBuilder {
 public:
  GgufBuilder& key(std::string_view name, GgufType type, const std::string& value) {
    keys_ += text(name) + number<std::uint32_t>(static_cast<std::uint32_t>(type)) + value;
    ++num_keys;
    return *this;
  }
  GgufBuilder& string(std::string_view name, std::string_view value) {
    return key(name, GgufType::kString, text(value));
  }
  GgufBuilder& uint32(std::string_view name, std::uint32_t value) {
    return key(name, GgufType::kUint32, number(value));
  }
  GgufBuilder& tensor(std::string_view name, const std::vector<std::uint64_t>& dims,
                      std::uint32_t type, std::uint64_t offset) {
    tensors_ += text(name) + number(static_cast<std::uint32_t>(dims.size()));
    for (const std::uint64_t dim : dims) tensors_ += number(dim);
    tensors_ += number(type) + number(offset);
    ++num_tensors;
    return *this;
  }

  // The file, data padded to a multiple of 32 bytes.
  std::string bytes() const {
    std::string file = magic + number(version) + number(num_tensors) + number(num_keys);
    file += keys_ + tensors_;
    if (!data.empty()) file.resize((file.size() + 31) / 32 * 32, '\0');
    return file + data;
  }

  template <typename T>
  static std::string number(T value) {
    std::string bytes(sizeof(T), '\0');
    std::memcpy(bytes.data(), &value, sizeof(T));
    return bytes;
  }
  static std::string text(std::string_view value) {
    return number(static_cast<std::uint64_t>(value.size())) + std::string(value);
  }
  static std::string array(GgufType type, std::uint64_t size, const std::string& elements) {
    return number(static_cast<std::uint32_t>(type)) + number(size) + elements;
  }

  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::uint64_t num_keys = 0;
  std::uint64_t num_tensors = 0;
  std::string data;

 private:
  std::string keys_;
  std::string tensors_;
};

}  // namespace batchmill::testing
