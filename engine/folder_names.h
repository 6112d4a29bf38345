// Which arrays of a model folder make up the tensors that a model needs: the published names of
// each family beside GGUF's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/folder_config.h"
#include "engine/safetensors_folder.h"

namespace batchmill {

// One tensor in GGUF's names and conventions.
struct TensorMapping {
  std::string name;
  std::vector<std::string> sources;  // stacked along the rows: one, or one per expert
  bool transposed = false;  // the folder's matrix is [in, out]
  float added = 0.0f;  // to each element
};

struct FolderNames {
  std::vector<TensorMapping> tensors;
  std::string prefix;  // before the names of layers: "model.", "transformer.", …
};

// All tensors that the model needs; their sources may be missing. Throws std::runtime_error if the
// folder does not hold a model of the family.
FolderNames map_folder_names(const FolderConfig& config, const SafetensorsFolder& files);

// An array beside the mapped ones that the family's own software leaves unused too: masks, tables
// that are computed, a pooler, an image encoder, an output matrix of a model whose embedding is its
// output.
bool is_unused_array(const FolderConfig& config, const FolderNames& names, std::string_view array);

}  // namespace batchmill
