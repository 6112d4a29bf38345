#include "queue/input_stream.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "queue/decompressor.h"
#include "queue/raw_input.h"

namespace batchmill {
namespace {

class PlainInput : public InputStream {
 public:
  explicit PlainInput(std::unique_ptr<RawInput> raw) : raw_(std::move(raw)) {}

  std::size_t read_at(std::uint64_t offset, char* buffer, std::size_t size) override {
    return raw_->read_at(offset, buffer, size);
  }

 private:
  std::unique_ptr<RawInput> raw_;
};

class PackedInput : public InputStream {
 public:
  PackedInput(std::unique_ptr<RawInput> raw, Compression compression)
      : raw_(std::move(raw)), compression_(compression) {}

  std::size_t read_at(std::uint64_t offset, char* buffer, std::size_t size) override {
    if (decompressor_ == nullptr || offset < position_) {
      decompressor_ = Decompressor::create(compression_, *raw_);
      position_ = 0;
    }
    while (position_ < offset) {
      skipped_.resize(256 << 10);
      const auto wanted = std::min<std::uint64_t>(offset - position_, skipped_.size());
      const std::size_t got = decompressor_->read(skipped_.data(), wanted);
      if (got == 0) return 0;
      position_ += got;
    }
    const std::size_t got = size == 0 ? 0 : decompressor_->read(buffer, size);
    position_ += got;
    return got;
  }

 private:
  std::unique_ptr<RawInput> raw_;
  Compression compression_;
  std::unique_ptr<Decompressor> decompressor_;
  std::uint64_t position_ = 0;  // content offset that the decompressor has reached
  std::vector<char> skipped_;
};

}  // namespace

InputError::InputError(std::string code, const std::string& message)
    : std::runtime_error(message), code_(std::move(code)) {}

std::unique_ptr<InputStream> InputStream::open(const std::string& path) {
  auto raw = std::make_unique<RawInput>(path);
  char first[8];
  const std::size_t size = raw->read_at(0, first, sizeof first);
  const Compression compression = detect_compression(std::string_view(first, size));
  if (compression == Compression::kNone) return std::make_unique<PlainInput>(std::move(raw));
  if (compression == Compression::kOther) {
    throw InputError("unreadable_input", raw->name() +
                                             ": packed in a format that is not read; plain, gzip "
                                             "and zstd are");
  }
  return std::make_unique<PackedInput>(std::move(raw), compression);
}

}  // namespace batchmill
