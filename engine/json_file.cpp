#include "engine/json_file.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "engine/mapped_file.h"

namespace batchmill {

nlohmann::ordered_json read_json_file(const std::string& path) {
  const MappedFile file(path);
  const auto* text = reinterpret_cast<const char*>(file.bytes().data());
  try {
    return nlohmann::ordered_json::parse(text, text + file.bytes().size());
  } catch (const nlohmann::json::parse_error& error) {
    throw std::runtime_error(path + ": byte " + std::to_string(error.byte) + ": not valid JSON");
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(path + ": " + error.what());
  }
}

}  // namespace batchmill
