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

// Another maker's vocabulary or model, as tools/fetch_vocabularies names it ($BATCHMILL_VOCABS is
// their folder).
inline std::filesystem::path vocabulary_file(const std::string& name) {
  const char* folder = std::getenv("BATCHMILL_VOCABS");
  const char* home = std::getenv("HOME");
  const bool is_given = folder != nullptr && *folder != '\0';
  const std::filesystem::path root = is_given ? std::filesystem::path(folder)
                                              : std::filesystem::path(home != nullptr ? home : "") /
                                                    ".cache/batchmill/vocabularies";
  const std::filesystem::path path = root / name;
  return std::filesystem::exists(path) ? path : std::filesystem::path();
}

}  // namespace batchmill::testing
