// Writes safetensors files for tests, right or wrong on purpose.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace batchmill::testing {

class SafetensorsBuilder {
 public:
  // Appends an array whose elements are `data`.
  SafetensorsBuilder& array(const std::string& name, const std::string& dtype,
                            const std::vector<std::int64_t>& shape, std::string_view data_bytes) {
    const std::size_t begin = data.size();
    data += data_bytes;
    header[name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {begin, data.size()}}};
    return *this;
  }
  SafetensorsBuilder& floats(const std::string& name, const std::vector<std::int64_t>& shape,
                             const std::vector<float>& values) {
    return array(name, "F32", shape,
                 {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  }
  SafetensorsBuilder& words(const std::string& name, const std::vector<std::int64_t>& shape,
                            const std::vector<std::uint32_t>& values) {
    return array(name, "I32", shape,
                 {reinterpret_cast<const char*>(values.data()), values.size() * 4});
  }

  std::string bytes() const { return file_of(header.dump()); }

  // With another header text before the same data.
  std::string file_of(const std::string& header_text) const {
    const std::uint64_t size = header_text.size();
    std::string length(sizeof(size), '\0');
    std::memcpy(length.data(), &size, sizeof(size));
    return length + header_text + data;
  }

  // The arrays of an existing file.
  static SafetensorsBuilder read(const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    const std::string file{std::istreambuf_iterator<char>(stream), {}};
    SafetensorsBuilder builder;
    std::uint64_t size = 0;
    std::memcpy(&size, file.data(), sizeof(size));
    builder.header = nlohmann::json::parse(file.substr(sizeof(size), size));
    builder.data = file.substr(sizeof(size) + size);
    return builder;
  }

  std::string_view data_of(const std::string& name) const {
    const auto begin = header.at(name).at("data_offsets").at(0).get<std::size_t>();
    const auto end = header.at(name).at("data_offsets").at(1).get<std::size_t>();
    return std::string_view(data).substr(begin, end - begin);
  }

  nlohmann::json header = nlohmann::json::object();
  std::string data;
};

}  // namespace batchmill::testing
