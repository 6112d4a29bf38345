#include "engine/safetensors_floats.h"

#include "engine/dequantize.h"

namespace batchmill {

std::optional<GgmlType> float_type(const std::string& dtype) {
  if (dtype == "F32") return GgmlType::kF32;
  if (dtype == "F16") return GgmlType::kF16;
  if (dtype == "BF16") return GgmlType::kBF16;
  return std::nullopt;
}

void read_floats(const SafetensorsTensor& tensor, std::int64_t first, std::int64_t count,
                 float* output) {
  const GgmlType type = *float_type(tensor.dtype);
  dequantize_row(type, tensor.bytes.data() + row_bytes(type, first), count, output);
}

}  // namespace batchmill
