// The model that a folder's config.json describes, as transformers 4 or 5 writes it.
#pragma once

#include <optional>
#include <string>

#include "engine/config_object.h"
#include "engine/model_config.h"
#include "engine/packed_linear.h"

namespace batchmill {

struct FolderConfig {
  ModelConfig model;
  std::optional<PackedFormat> packed;  // how quantized matrices are stored
  std::int32_t num_extra_layers = 0;  // of the file, past the model's: not used
};

// `config` is the parsed config.json. Throws std::runtime_error naming the key that is missing or
// out of range, or the architecture or feature that is not supported.
FolderConfig read_folder_config(const ConfigObject& config);

// modules.json and the pooling it names, of a sentence encoder's folder: what they ask must be what
// encoders do here (mean of the last hidden states, unit length), else std::runtime_error. A folder
// without modules.json asks nothing. Lowers the longest input to that of sentence_bert_config.json.
void apply_sentence_encoder(const std::string& folder, ModelConfig* model);

}  // namespace batchmill
