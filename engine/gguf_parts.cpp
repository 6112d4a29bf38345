// A GGUF model that lies in several files, as the format's split keys describe it.
#include <algorithm>
#include <system_error>

#include "engine/gguf.h"
#include "engine/xxh64.h"

namespace batchmill {
namespace {

constexpr std::int64_t kMaxParts = 65535;

// What content_hash() has in memory at a time. A change changes the hashes of larger files.
constexpr std::size_t kHashedBytes = std::size_t{16} << 20;

std::string five_digits(std::int64_t number) {
  const std::string digits = std::to_string(number);
  return digits.size() < 5 ? std::string(5 - digits.size(), '0') + digits : digits;
}

// "-00002-of-00005.gguf", counted from one.
std::string part_suffix(std::int64_t number, std::int64_t count) {
  return "-" + five_digits(number) + "-of-" + five_digits(count) + ".gguf";
}

std::string part_of(std::int64_t number, std::int64_t count) {
  return "part " + std::to_string(number) + " of " + std::to_string(count);
}

}  // namespace

void GgufFile::open_other_parts() {
  const std::int64_t count = integer("split.count").value_or(1);
  if (count == 0 || count == 1) return;
  const std::int64_t index = integer("split.no").value_or(0);
  if (count < 0 || count > kMaxParts || index < 0 || index >= count) {
    fail("damaged GGUF file: it says it is " + part_of(index + 1, count));
  }
  const std::string suffix = part_suffix(index + 1, count);
  const bool named = path_.ends_with(suffix);
  const std::string stem = named ? path_.substr(0, path_.size() - suffix.size()) : "";
  if (index > 0) {
    fail("this is " + part_of(index + 1, count) + " of a model, open the first" +
         (named ? ": " + stem + part_suffix(1, count) : ""));
  }
  if (!named) {
    fail("this is " + part_of(1, count) +
         " of a model; the others cannot be found, because its name does not end with " + suffix);
  }
  const auto num_tensors = integer("split.tensors.count");
  for (std::int64_t i = 1; i < count; ++i) add_part(stem + part_suffix(i + 1, count), i, count);
  if (num_tensors && *num_tensors != static_cast<std::int64_t>(tensors_.size())) {
    fail("its " + std::to_string(count) + " parts hold " + std::to_string(tensors_.size()) +
         " tensors, the model has " + std::to_string(*num_tensors));
  }
}

void GgufFile::add_part(const std::string& path, std::int64_t index, std::int64_t count) {
  std::unique_ptr<GgufFile> part;
  try {
    part.reset(new GgufFile(path, OnePart{}));
  } catch (const std::system_error& error) {
    throw std::system_error(error.code(), path_ + ": " + part_of(index + 1, count) + ", " + path);
  }
  if (part->integer("split.no") != index || part->integer("split.count") != count ||
      part->integer("split.tensors.count") != integer("split.tensors.count")) {
    part->fail("this is not " + part_of(index + 1, count) + " of the model that begins with " +
               path_);
  }
  for (const GgufTensor& tensor : part->tensors_) {
    if (!tensor_index_.emplace(tensor.name, tensors_.size()).second) {
      part->fail("tensor '" + std::string(tensor.name) + "' is in an earlier part too");
    }
    tensors_.push_back(tensor);
  }
  other_parts_.push_back(std::move(part));
}

std::uint64_t GgufFile::content_hash() const {
  std::vector<std::uint64_t> hashes;
  const auto add = [&](std::span<const std::byte> bytes) {
    for (std::size_t begin = 0; begin < bytes.size(); begin += kHashedBytes) {
      const auto piece = bytes.subspan(begin, std::min(kHashedBytes, bytes.size() - begin));
      hashes.push_back(xxh64(piece));
      MappedFile::release(piece);
    }
  };
  add(file_.bytes());
  for (const auto& part : other_parts_) add(part->file_.bytes());
  return hashes.size() == 1 ? hashes.front() : xxh64(std::as_bytes(std::span(hashes)));
}

}  // namespace batchmill
