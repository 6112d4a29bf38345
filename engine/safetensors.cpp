#include "engine/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>

#include "engine/json_file.h"
#include "engine/xxh64.h"

namespace batchmill {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read in place");

// What the format's own reader allows.
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::size_t kHashPieceBytes = std::size_t{16} << 20;

struct DTypeSize {
  std::string_view name;
  std::int64_t bytes;
};

constexpr std::array<DTypeSize, 15> kDTypes = {{{"BOOL", 1},
                                                {"U8", 1},
                                                {"I8", 1},
                                                {"F8_E5M2", 1},
                                                {"F8_E4M3", 1},
                                                {"F8_E8M0", 1},
                                                {"I16", 2},
                                                {"U16", 2},
                                                {"F16", 2},
                                                {"BF16", 2},
                                                {"I32", 4},
                                                {"U32", 4},
                                                {"F32", 4},
                                                {"I64", 8},
                                                {"F64", 8}}};

std::int64_t dtype_size(std::string_view name) {
  const auto* found =
      std::find_if(kDTypes.begin(), kDTypes.end(), [&](const auto& t) { return t.name == name; });
  if (found != kDTypes.end()) return found->bytes;
  return name == "U64" ? 8 : 0;
}

// A non-negative number that fits 63 bits, or −1.
std::int64_t count_of(const nlohmann::json& value) {
  if (!value.is_number_unsigned()) return -1;
  const auto number = value.get<std::uint64_t>();
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  return number > kMost ? -1 : static_cast<std::int64_t>(number);
}

// What one entry of the header says.
struct Entry {
  SafetensorsTensor tensor;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// Throws std::runtime_error without the tensor's name.
Entry parse_entry(const nlohmann::json& json) {
  Entry entry;
  const auto part = [&](const char* key) -> const nlohmann::json& {
    const auto found = json.find(key);
    if (found == json.end()) throw std::runtime_error(std::string("has no '") + key + "'");
    return *found;
  };
  if (!json.is_object()) throw std::runtime_error("is not described by an object");
  const nlohmann::json& dtype = part("dtype");
  entry.tensor.dtype = dtype.is_string() ? dtype.get<std::string>() : dtype.dump();
  std::int64_t bytes = dtype_size(entry.tensor.dtype);
  if (bytes == 0) throw std::runtime_error("has the unknown dtype " + entry.tensor.dtype);
  const nlohmann::json& shape = part("shape");
  if (!shape.is_array()) throw std::runtime_error("has a shape that is no list");
  for (const nlohmann::json& value : shape) {
    const std::int64_t size = count_of(value);
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) {
      throw std::runtime_error("has the impossible shape " + shape.dump());
    }
    entry.tensor.shape.push_back(size);
  }
  const nlohmann::json& offsets = part("data_offsets");
  if (!offsets.is_array() || offsets.size() != 2) {
    throw std::runtime_error("has data_offsets that are not two numbers");
  }
  entry.begin = count_of(offsets[0]);
  entry.end = count_of(offsets[1]);
  if (entry.begin < 0 || entry.end < entry.begin) {
    throw std::runtime_error("has the impossible data_offsets " + offsets.dump());
  }
  if (entry.end - entry.begin != bytes) {
    throw std::runtime_error("of shape " + shape.dump() + " and dtype " + entry.tensor.dtype +
                             " needs " + std::to_string(bytes) + " bytes, data_offsets give " +
                             std::to_string(entry.end - entry.begin));
  }
  return entry;
}

}  // namespace

std::int64_t SafetensorsTensor::num_elements() const {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path), file_(path) {
  read_header();
}

void SafetensorsFile::fail(const std::string& message) const {
  throw std::runtime_error(path_ + ": " + message);
}

void SafetensorsFile::read_header() {
  const std::span<const std::byte> bytes = file_.bytes();
  std::uint64_t header_bytes = 0;
  if (bytes.size() < sizeof(header_bytes)) fail("too short to be a safetensors file");
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  const std::uint64_t rest = bytes.size() - sizeof(header_bytes);
  if (header_bytes > kMaxHeaderBytes) {
    fail("not a safetensors file (a header of " + std::to_string(header_bytes) + " bytes)");
  }
  if (header_bytes > rest) {
    fail("truncated: the header has " + std::to_string(header_bytes) + " bytes, the file " +
         std::to_string(rest) + " more");
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + sizeof(header_bytes),
                              header_bytes);
  nlohmann::json header;
  try {
    header = parse_json_table(text);
  } catch (const std::runtime_error& error) {
    fail(std::string("header: ") + error.what());
  }
  if (!header.is_object()) fail("header: not an object");

  const std::size_t data_begin = sizeof(header_bytes) + header_bytes;
  const auto data_bytes = static_cast<std::int64_t>(bytes.size() - data_begin);
  for (const auto& [name, json] : header.items()) {
    if (name == "__metadata__") continue;
    try {
      Entry entry = parse_entry(json);
      if (entry.end > data_bytes) {
        throw std::runtime_error("ends at byte " + std::to_string(entry.end) +
                                 " of the data, which has " + std::to_string(data_bytes) +
                                 ": the file is truncated");
      }
      entry.tensor.name = name;
      entry.tensor.bytes = bytes.subspan(data_begin + static_cast<std::size_t>(entry.begin),
                                         static_cast<std::size_t>(entry.end - entry.begin));
      tensors_.push_back(std::move(entry.tensor));
    } catch (const std::runtime_error& error) {
      fail("tensor '" + name + "' " + error.what());
    }
  }
  // Empty tensors before the one that starts at the same byte.
  std::sort(tensors_.begin(), tensors_.end(), [](const auto& a, const auto& b) {
    return std::pair(a.bytes.data(), a.bytes.size()) < std::pair(b.bytes.data(), b.bytes.size());
  });
  check_layout(data_begin);
}

void SafetensorsFile::check_layout(std::size_t data_begin) const {
  const std::byte* expected = file_.bytes().data() + data_begin;
  for (const SafetensorsTensor& tensor : tensors_) {
    if (tensor.bytes.data() < expected) {
      fail("tensor '" + tensor.name + "' overlaps the one before it");
    }
    if (tensor.bytes.data() > expected) {
      fail("there is a gap of " + std::to_string(tensor.bytes.data() - expected) +
           " bytes before tensor '" + tensor.name + "'");
    }
    expected += tensor.bytes.size();
  }
  const auto excess = file_.bytes().data() + file_.bytes().size() - expected;
  if (excess != 0) fail(std::to_string(excess) + " bytes at the end belong to no tensor");
}

std::uint64_t SafetensorsFile::content_hash(std::uint64_t seed) const {
  std::span<const std::byte> rest = file_.bytes();
  std::uint64_t hash = xxh64(std::as_bytes(std::span(&seed, 1)), rest.size());
  while (!rest.empty()) {
    const std::span<const std::byte> piece = rest.first(std::min(rest.size(), kHashPieceBytes));
    hash = xxh64(piece, hash);
    file_.release(piece);
    rest = rest.subspan(piece.size());
  }
  return hash;
}

}  // namespace batchmill
