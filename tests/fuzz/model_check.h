// What holds for every model that could be opened. Reads each tensor's first and last row. Pure;
// any thread.
#pragma once

#include <cstddef>
#include <string_view>

#include "engine/model_files.h"

namespace batchmill::fuzz {

// `input_bytes`: the size of the files.
void check_model(ModelFiles files, std::size_t input_bytes, std::string_view text);

void check_tensors(const TensorSource& tensors, std::size_t input_bytes);

}  // namespace batchmill::fuzz
