#include "queue/decompressor.h"

#include <fmt/core.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <new>
#include <vector>

#include "queue/input_stream.h"

namespace batchmill {
namespace {

constexpr std::size_t kChunkBytes = 256 << 10;
constexpr std::string_view kGzipMagic = "\x1f\x8b";
constexpr std::string_view kZstdMagic = "\x28\xb5\x2f\xfd";

// Hands out a RawInput's bytes in order.
class PackedBytes {
 public:
  explicit PackedBytes(RawInput& input) : input_(input), buffer_(kChunkBytes) {}

  // Bytes not yet taken; reads more when there are none. Empty at the end of the file.
  std::string_view rest() {
    if (at_ == size_) {
      offset_ += size_;
      size_ = input_.read_at(offset_, buffer_.data(), buffer_.size());
      at_ = 0;
    }
    return {buffer_.data() + at_, size_ - at_};
  }
  void take(std::size_t count) { at_ += count; }

  [[noreturn]] void fail_cut() const {
    throw InputError("truncated_input",
                     fmt::format("{}: the archive is cut: it ends in its middle, at byte {}",
                                 input_.name(), offset_ + at_));
  }
  [[noreturn]] void fail_damaged(std::string_view why) const {
    throw InputError("unreadable_input", fmt::format("{}: the archive is damaged near byte {}: {}",
                                                     input_.name(), offset_ + at_, why));
  }

 private:
  RawInput& input_;
  std::vector<char> buffer_;
  std::uint64_t offset_ = 0;  // of buffer_[0] in the file
  std::size_t at_ = 0;
  std::size_t size_ = 0;
};

class GzipDecompressor : public Decompressor {
 public:
  explicit GzipDecompressor(RawInput& input) : packed_(input) {
    if (inflateInit2(&stream_, 15 + 16) != Z_OK) throw std::bad_alloc();
  }
  ~GzipDecompressor() override { inflateEnd(&stream_); }
  GzipDecompressor(const GzipDecompressor&) = delete;
  GzipDecompressor& operator=(const GzipDecompressor&) = delete;

  std::size_t read(char* buffer, std::size_t size) override {
    while (!ended_) {
      std::string_view bytes = packed_.rest();
      if (!in_member_) {
        if (!start_member(bytes)) break;
        bytes = packed_.rest();
      }
      // The end of the file is a fault only once nothing more comes out.
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
      stream_.avail_in = static_cast<uInt>(bytes.size());
      stream_.next_out = reinterpret_cast<Bytef*>(buffer);
      stream_.avail_out = static_cast<uInt>(std::min<std::size_t>(size, 1u << 30));
      const uInt room = stream_.avail_out;
      const int status = inflate(&stream_, Z_NO_FLUSH);
      packed_.take(bytes.size() - stream_.avail_in);
      if (status == Z_STREAM_END) in_member_ = false;
      if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) {
        packed_.fail_damaged(stream_.msg != nullptr ? stream_.msg : "no valid gzip data");
      }
      if (stream_.avail_out < room) return room - stream_.avail_out;
      if (status == Z_BUF_ERROR && bytes.empty()) packed_.fail_cut();
    }
    return 0;
  }

 private:
  // Between members: false at the end of the file, which zero bytes may pad.
  bool start_member(std::string_view bytes) {
    if (first_member_) {
      first_member_ = false;
    } else {
      while (!bytes.empty() && bytes.front() == '\0') {
        packed_.take(1);
        bytes = packed_.rest();
        padded_ = true;
      }
      if (bytes.empty()) {
        ended_ = true;
        return false;
      }
      if (padded_ || bytes.front() != kGzipMagic.front()) {
        packed_.fail_damaged("other bytes follow the archive");
      }
      inflateReset(&stream_);
    }
    in_member_ = true;
    return true;
  }

  PackedBytes packed_;
  z_stream stream_ = {};
  bool first_member_ = true;
  bool in_member_ = false;
  bool padded_ = false;
  bool ended_ = false;
};

class ZstdDecompressor : public Decompressor {
 public:
  explicit ZstdDecompressor(RawInput& input) : packed_(input), context_(ZSTD_createDCtx()) {
    if (context_ == nullptr) throw std::bad_alloc();
  }
  ~ZstdDecompressor() override { ZSTD_freeDCtx(context_); }
  ZstdDecompressor(const ZstdDecompressor&) = delete;
  ZstdDecompressor& operator=(const ZstdDecompressor&) = delete;

  std::size_t read(char* buffer, std::size_t size) override {
    while (true) {
      const std::string_view bytes = packed_.rest();
      if (bytes.empty() && !in_frame_) return 0;
      ZSTD_inBuffer in = {bytes.data(), bytes.size(), 0};
      ZSTD_outBuffer out = {buffer, size, 0};
      const std::size_t hint = ZSTD_decompressStream(context_, &out, &in);
      if (ZSTD_isError(hint) != 0) packed_.fail_damaged(ZSTD_getErrorName(hint));
      packed_.take(in.pos);
      in_frame_ = hint != 0;
      if (out.pos > 0) return out.pos;
      if (in_frame_ && bytes.empty()) packed_.fail_cut();
    }
  }

 private:
  PackedBytes packed_;
  ZSTD_DCtx* context_;
  bool in_frame_ = false;
};

}  // namespace

Compression detect_compression(std::string_view first_bytes) {
  if (first_bytes.starts_with(kGzipMagic)) return Compression::kGzip;
  if (first_bytes.starts_with(kZstdMagic)) return Compression::kZstd;
  // A skippable frame: 0x184D2A50 … 0x184D2A5F, little-endian.
  if (first_bytes.size() >= 4 && (static_cast<unsigned char>(first_bytes[0]) & 0xF0) == 0x50 &&
      first_bytes.substr(1, 3) == "\x2a\x4d\x18") {
    return Compression::kZstd;
  }
  using namespace std::string_view_literals;
  for (const std::string_view magic : {"BZh"sv,
                                       "\xfd"sv
                                       "7zXZ\0"sv,
                                       "PK\x03\x04"sv}) {
    if (first_bytes.starts_with(magic)) return Compression::kOther;
  }
  return Compression::kNone;
}

std::unique_ptr<Decompressor> Decompressor::create(Compression compression, RawInput& input) {
  if (compression == Compression::kGzip) return std::make_unique<GzipDecompressor>(input);
  return std::make_unique<ZstdDecompressor>(input);
}

}  // namespace batchmill
