// Copies of GGUF files in parts, as the gguf-split tool of llama.cpp writes them.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "engine/gguf.h"
#include "tests/engine/gguf_builder.h"

namespace batchmill::testing {

// The value as the file holds it, after its type.
inline std::string value_bytes(const GgufValue& value) {
  using B = GgufBuilder;
  if (const auto* array = std::get_if<GgufArray>(&value.value)) {
    return B::array(
        array->element_type, array->size,
        std::string(reinterpret_cast<const char*>(array->bytes.data()), array->bytes.size()));
  }
  if (const auto* text = std::get_if<std::string_view>(&value.value)) return B::text(*text);
  if (const auto* flag = std::get_if<bool>(&value.value)) return std::string(1, *flag ? 1 : 0);
  if (const auto* real = std::get_if<double>(&value.value)) {
    return value.type == GgufType::kFloat32 ? B::number(static_cast<float>(*real))
                                            : B::number(*real);
  }
  const std::uint64_t bits = std::holds_alternative<std::uint64_t>(value.value)
                                 ? std::get<std::uint64_t>(value.value)
                                 : static_cast<std::uint64_t>(std::get<std::int64_t>(value.value));
  std::size_t size = 4;
  if (value.type == GgufType::kUint8 || value.type == GgufType::kInt8) size = 1;
  if (value.type == GgufType::kUint16 || value.type == GgufType::kInt16) size = 2;
  if (value.type == GgufType::kUint64 || value.type == GgufType::kInt64) size = 8;
  return B::number(bits).substr(0, size);
}

// What one part of a model says of itself.
inline void add_split_keys(GgufBuilder* builder, int index, int count, std::size_t num_tensors) {
  using B = GgufBuilder;
  builder->key("split.no", GgufType::kUint16, B::number(static_cast<std::uint16_t>(index)));
  builder->key("split.count", GgufType::kUint16, B::number(static_cast<std::uint16_t>(count)));
  builder->key("split.tensors.count", GgufType::kInt32,
               B::number(static_cast<std::int32_t>(num_tensors)));
}

// Of at most nine parts.
inline std::string part_name(int index, int count) {
  return "model-0000" + std::to_string(index + 1) + "-of-0000" + std::to_string(count) + ".gguf";
}

// Writes the parts of `file` to `folder`; tensor i goes to part i mod count.
inline void write_parts(const GgufFile& file, int count, const std::filesystem::path& folder) {
  for (int part = 0; part < count; ++part) {
    GgufBuilder builder;
    if (part == 0) {
      for (const auto key : file.keys()) {
        const GgufValue& value = *file.find(key);
        builder.key(key, value.type, value_bytes(value));
      }
    }
    add_split_keys(&builder, part, count, file.tensors().size());
    for (std::size_t i = static_cast<std::size_t>(part); i < file.tensors().size();
         i += static_cast<std::size_t>(count)) {
      const GgufTensor& tensor = file.tensors()[i];
      builder.data.resize((builder.data.size() + 31) / 32 * 32, '\0');
      builder.tensor(tensor.name, {tensor.dims.begin(), tensor.dims.begin() + tensor.num_dims},
                     static_cast<std::uint32_t>(tensor.type), builder.data.size());
      builder.data.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
    }
    std::ofstream(folder / part_name(part, count), std::ios::binary) << builder.bytes();
  }
}

}  // namespace batchmill::testing
