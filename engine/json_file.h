// JSON files that belong to a model folder (config.json, tokenizer.json, …).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace batchmill {

// The whole file as a value; objects keep the order of their keys. Throws std::system_error if it
// cannot be read, std::runtime_error "PATH: byte N: what is wrong" if it is not one JSON value in
// UTF-8.
nlohmann::ordered_json read_json_file(const std::string& path);

// For objects of many thousand keys whose order does not matter: lookups take logarithmic time. One
// JSON value in UTF-8 that names no key of an object twice. Throws std::runtime_error "byte N: what
// is wrong".
nlohmann::json parse_json_table(std::string_view text);

}  // namespace batchmill
