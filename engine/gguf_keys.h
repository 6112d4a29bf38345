// Typed access to the metadata of one architecture in a GGUF file. A value; the file outlives it.
#pragma once

#include <cstdint>
#include <string>

#include "engine/gguf.h"

namespace batchmill {

inline constexpr std::int64_t kMaxLayers = 1024;
inline constexpr std::int64_t kMaxWidth = 1 << 20;  // hidden and intermediate size
inline constexpr std::int64_t kMaxVocabulary = 1 << 24;
inline constexpr std::int64_t kMaxHeads = 4096;
inline constexpr std::int64_t kMaxHeadDim = 1024;
inline constexpr std::int64_t kMaxContext = 1 << 28;
inline constexpr std::int64_t kMaxExperts = 4096;

class GgufKeys {
 public:
  GgufKeys(const GgufFile* file, const std::string& architecture)
      : file_(*file), prefix_(architecture + ".") {}

  const GgufFile& file() const { return file_; }

  // Numbers from 1 to `most`. All throw std::runtime_error that names the key.
  std::int32_t required(const std::string& key, std::int64_t most) const;
  std::int32_t integer(const std::string& key, std::int64_t otherwise, std::int64_t most) const;

  double number(const std::string& key, double otherwise) const {
    return file_.number(prefix_ + key).value_or(otherwise);
  }

  // A finite number > 0.
  float positive(const std::string& key, double otherwise) const;

  std::string string(const std::string& key, const std::string& otherwise) const;
  bool flag(const std::string& key, bool otherwise) const;
  bool has(const std::string& key) const { return file_.find(prefix_ + key) != nullptr; }

  // 0 if absent.
  std::int64_t count(const std::string& key) const {
    return file_.integer(prefix_ + key).value_or(0);
  }

 private:
  std::int32_t in_range(const std::string& key, std::int64_t value, std::int64_t most) const;

  const GgufFile& file_;
  std::string prefix_;
};

}  // namespace batchmill
