// A GGUF model file (versions 2 and 3, little-endian), memory-mapped: metadata and tensor
// directory. Nothing in the file is trusted: every count, length, offset and type is checked when
// it is opened, and memory stays in proportion to the file. Immutable and safe to share between
// threads. Format: docs/gguf.md of the ggml project.
//
// A model may be split: "NAME-00001-of-00005.gguf" holds the metadata, all parts hold tensors.
// Opening the first opens them all.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "engine/ggml_type.h"
#include "engine/mapped_file.h"

namespace batchmill {

// Type of a metadata value; the numbers are the file format's.
enum class GgufType : std::uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// An array of scalars or strings, left where it is in the file (elements may be unaligned).
struct GgufArray {
  GgufType element_type = GgufType::kUint8;
  std::uint64_t size = 0;
  std::span<const std::byte> bytes;  // all elements, checked to be whole
};

// Unsigned and signed integers, floats, bool, string or array, as GgufType says.
struct GgufValue {
  GgufType type = GgufType::kUint8;
  std::variant<std::uint64_t, std::int64_t, double, bool, std::string_view, GgufArray> value;
};

struct GgufTensor {
  std::string_view name;
  GgmlType type = GgmlType::kF32;
  std::int32_t num_dims = 0;
  std::array<std::uint64_t, 4> dims{1, 1, 1, 1};  // dims[0] is a row's length, contiguous
  // The whole tensor; of a type that find_type_info() does not know: what follows its offset.
  std::span<const std::byte> bytes;

  std::uint64_t num_elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  std::uint64_t num_rows() const { return dims[1] * dims[2] * dims[3]; }
};

class GgufFile {
 public:
  // Throws std::system_error (it or a part of it cannot be opened) or std::runtime_error:
  // "PATH: what is wrong where".
  explicit GgufFile(const std::string& path);

  const std::string& path() const { return path_; }

  // XXH64 over all bytes; of a large or split file, over the hashes of its pieces in order.
  std::uint64_t content_hash() const;

  // Metadata. `find` gives null if the key is absent. The typed accessors give nothing if it is
  // absent and throw std::runtime_error if it is there with another type or out of range.
  const GgufValue* find(std::string_view key) const;
  std::optional<std::int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;  // integers too
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string_view> string(std::string_view key) const;
  std::optional<std::vector<std::string_view>> strings(std::string_view key) const;
  std::optional<std::vector<std::int64_t>> integers(std::string_view key) const;
  const std::vector<std::string_view>& keys() const { return keys_; }  // in the file's order

  // Tensors in the file's order; null or std::runtime_error if there is none of that name.
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* find_tensor(std::string_view name) const;
  const GgufTensor& tensor(std::string_view name) const;

  // The tensor's bytes will hardly be read again: their pages in memory may go.
  void release(const GgufTensor& tensor) const { MappedFile::release(tensor.bytes); }

  // An error about this file's content, for those who read it.
  [[noreturn]] void fail(const std::string& message) const;

 private:
  class Parser;
  struct OnePart {};

  // The file alone, whatever its split keys say.
  GgufFile(const std::string& path, OnePart);
  void open_other_parts();
  void add_part(const std::string& path, std::int64_t index, std::int64_t count);

  std::string path_;
  MappedFile file_;
  std::vector<std::string_view> keys_;
  std::unordered_map<std::string_view, GgufValue> metadata_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, std::size_t> tensor_index_;
  std::vector<std::unique_ptr<GgufFile>> other_parts_;  // tensors_ point into them too
};

}  // namespace batchmill
