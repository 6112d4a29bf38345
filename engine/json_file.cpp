#include "engine/json_file.h"

#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <vector>

#include "engine/mapped_file.h"

namespace batchmill {
namespace {

// Values are printed and compared by recursion: a file of brackets must not use up the stack.
void check_depth(int depth, const std::string& place) {
  constexpr int kMaxDepth = 256;
  if (depth > kMaxDepth) {
    throw std::runtime_error(place + "nests deeper than " + std::to_string(kMaxDepth) + " levels");
  }
}

}  // namespace

nlohmann::ordered_json read_json_file(const std::string& path) {
  const MappedFile file(path);
  const auto* text = reinterpret_cast<const char*>(file.bytes().data());
  const auto check = [&](int depth, nlohmann::json::parse_event_t, const auto&) {
    check_depth(depth, path + ": ");
    return true;
  };
  try {
    return nlohmann::ordered_json::parse(text, text + file.bytes().size(), check);
  } catch (const nlohmann::json::parse_error& error) {
    throw std::runtime_error(path + ": byte " + std::to_string(error.byte) + ": not valid JSON");
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(path + ": " + error.what());
  }
}

nlohmann::json parse_json_table(std::string_view text) {
  using nlohmann::json;
  std::vector<std::set<std::string>> open_objects;
  const auto check_keys = [&](int depth, json::parse_event_t event, json& value) {
    check_depth(depth, "");
    if (event == json::parse_event_t::object_start) open_objects.emplace_back();
    if (event == json::parse_event_t::object_end) open_objects.pop_back();
    if (event == json::parse_event_t::key) {
      const auto& key = value.get_ref<const std::string&>();
      if (!open_objects.back().insert(key).second) {
        throw std::runtime_error("'" + key + "' occurs twice");
      }
    }
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), check_keys);
  } catch (const json::parse_error& error) {
    throw std::runtime_error("byte " + std::to_string(error.byte) + ": not valid JSON");
  } catch (const json::exception& error) {
    throw std::runtime_error(error.what());
  }
}

}  // namespace batchmill
