// A whole file, mapped read-only into memory. Immutable and safe to share; unmapped when destroyed.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace batchmill {

class MappedFile {
 public:
  // Throws std::system_error that names the file.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // A part of some file's bytes() will hardly be read again: whole pages inside it leave this
  // process's memory until they are.
  static void release(std::span<const std::byte> part);

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace batchmill
