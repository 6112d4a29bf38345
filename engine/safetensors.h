// A safetensors file: named arrays in one memory-mapped file. Immutable, any thread.
//
// The format: 8 bytes of little-endian length, so many bytes of JSON {"name": {"dtype", "shape",
// "data_offsets": [begin, end]}, …, "__metadata__": {…}}, then the arrays, which fill the rest of
// the file without gaps; offsets count from the JSON's end. Nothing of it is trusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/mapped_file.h"

namespace batchmill {

struct SafetensorsTensor {
  std::string name;
  std::string dtype;  // as the file names it: "F32", "BF16", "I32", …
  std::vector<std::int64_t> shape;  // outermost first; each ≥ 0, the product fits the file
  std::span<const std::byte> bytes;  // row-major, little-endian, at any alignment

  std::int64_t num_elements() const;
};

class SafetensorsFile {
 public:
  // Throws std::system_error (no such file) or std::runtime_error that names the file and the
  // tensor that is broken.
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }  // in file order

  // As MappedFile::release.
  void release(const SafetensorsTensor& tensor) const { file_.release(tensor.bytes); }

  // XXH64 of the whole file, piece by piece, each seeded with the hash so far. Keeps no more than a
  // piece in memory.
  std::uint64_t content_hash(std::uint64_t seed) const;

 private:
  void read_header();
  void check_layout(std::size_t data_begin) const;
  [[noreturn]] void fail(const std::string& message) const;

  std::string path_;
  MappedFile file_;
  std::vector<SafetensorsTensor> tensors_;
};

}  // namespace batchmill
