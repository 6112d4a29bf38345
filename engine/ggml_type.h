// Element types of tensors in GGUF files, with their names and block shapes.
#pragma once

#include <cstdint>
#include <string>

namespace batchmill {

// The types that can be read; the values are the file format's. Files may hold ids that are not
// listed here.
enum class GgmlType : std::uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ4_NL = 20,
  kBF16 = 30,
  kMXFP4 = 39,
};

// A row is a whole number of blocks of `block_elements`, each `block_bytes` long.
struct GgmlTypeInfo {
  const char* name = nullptr;
  std::int32_t block_elements = 0;
  std::int32_t block_bytes = 0;
  bool supported = false;  // dequantize_row() reads it
};

// The type's description, or null for an id that the format does not define.
const GgmlTypeInfo* find_type_info(GgmlType type);

// "Q4_0", or the number of an id that the format does not define.
std::string type_name(GgmlType type);

}  // namespace batchmill
