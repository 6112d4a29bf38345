#include "engine/tokenizer_file.h"

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "engine/gguf_vocabulary.h"
#include "engine/hf_vocabulary.h"
#include "engine/mapped_file.h"
#include "engine/rank_file.h"

namespace batchmill {
namespace {

std::optional<Vocabulary> read_any_vocabulary(const std::string& path) {
  if (std::filesystem::is_directory(path)) return read_hf_vocabulary(path);
  if (path.ends_with(".txt")) return read_vocab_txt(path);
  constexpr std::size_t kMaxFirstLine = 1024;
  const MappedFile file(path);
  const std::string_view begin(reinterpret_cast<const char*>(file.bytes().data()),
                               std::min(file.bytes().size(), kMaxFirstLine));
  if (path.ends_with(".json") || begin.starts_with('{')) return read_tokenizer_json(path);
  if (looks_like_rank_file(begin)) return read_rank_file(path);
  return read_vocabulary(GgufFile(path));
}

}  // namespace

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& path) {
  std::optional<Vocabulary> vocabulary = read_any_vocabulary(path);
  if (!vocabulary) throw std::runtime_error(path + ": holds no tokenizer");
  try {
    return Tokenizer::create(std::move(*vocabulary));
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(path + ": " + error.what());
  }
}

}  // namespace batchmill
