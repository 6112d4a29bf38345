#include "actors/embedding_body.h"

#include <array>
#include <bit>
#include <charconv>
#include <cstdint>
#include <string_view>

namespace batchmill {
namespace {

// The double that the shortest decimal text of a float stands for: what JSON shows has as few
// digits as the float needs.
double shortest(float value) {
  std::array<char, 32> text;
  const char* const end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  double result = 0.0;
  std::from_chars(text.data(), end, result);
  return result;
}

Json vector_json(const Success& success, std::span<const float> values) {
  if (success.work->base64) return base64_floats(values);
  Json numbers = Json::array();
  for (const float value : values) numbers.push_back(shortest(value));
  return numbers;
}

}  // namespace

std::string base64_floats(std::span<const float> values) {
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  for (const float value : values) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(bits >> shift);
  }
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const auto byte = [&](std::size_t at) {
      return at < bytes.size() ? static_cast<std::uint32_t>(static_cast<std::uint8_t>(bytes[at]))
                               : 0u;
    };
    const std::uint32_t word = byte(i) << 16 | byte(i + 1) << 8 | byte(i + 2);
    for (std::size_t digit = 0; digit < 4; ++digit) {
      text += i + digit > bytes.size() ? '=' : kAlphabet[word >> (18 - 6 * digit) & 63];
    }
  }
  return text;
}

Json embedding_body(const Success& success) {
  Json data = Json::array();
  std::int64_t prompt_tokens = 0;
  for (const RequestOutput& output : *success.outputs) {
    prompt_tokens += output.num_prompt_tokens;
    data.push_back({{"object", "embedding"},
                    {"index", data.size()},
                    {"embedding", vector_json(success, output.embedding)}});
  }
  return {{"object", "list"},
          {"data", std::move(data)},
          {"model", success.work->requested_model},
          {"usage", {{"prompt_tokens", prompt_tokens}, {"total_tokens", prompt_tokens}}},
          {"system_fingerprint", "fp_" + success.fingerprint}};
}

}  // namespace batchmill
