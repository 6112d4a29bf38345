// Where tests find data that is not part of the repository. Each gives an empty path if it is not
// there; the test then skips and says so.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace batchmill::testing {

// A file below the reference data's folder ($BATCHMILL_REFERENCE).
inline std::filesystem::path reference_file(const std::string& name) {
  const char* folder = std::getenv("BATCHMILL_REFERENCE");
  const std::filesystem::path root =
      folder != nullptr ? std::filesystem::path(folder)
                        : std::filesystem::path(BATCHMILL_SOURCE_DIR) / "../shared/reference";
  const std::filesystem::path path = root / name;
  return std::filesystem::exists(path) ? path : std::filesystem::path();
}

// The real model ($BATCHMILL_MODEL).
inline std::filesystem::path model_file() {
  const char* given = std::getenv("BATCHMILL_MODEL");
  const char* home = std::getenv("HOME");
  const std::filesystem::path path = given != nullptr
                                         ? std::filesystem::path(given)
                                         : std::filesystem::path(home != nullptr ? home : "") /
                                               ".cache/batchmill/SmolLM2-135M-Instruct.Q4_1.gguf";
  return std::filesystem::exists(path) ? path : std::filesystem::path();
}

// A vocabulary-only GGUF ($BATCHMILL_VOCABS is their folder).
inline std::filesystem::path vocabulary_file(const std::string& name) {
  const char* folder = std::getenv("BATCHMILL_VOCABS");
  if (folder == nullptr) return {};
  const std::filesystem::path path = std::filesystem::path(folder) / name;
  return std::filesystem::exists(path) ? path : std::filesystem::path();
}

}  // namespace batchmill::testing
