// Bounds-checked reading and plain writing of the fields of one value. Internal to the codec.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "storage/keys.h"
#include "storage/record_codec.h"

namespace batchmill::codec {

class RecordWriter {
 public:
  explicit RecordWriter(std::uint8_t version) { u8(version); }

  void u8(std::uint8_t value) { bytes_ += static_cast<char>(value); }
  void boolean(bool value) { u8(value ? 1 : 0); }
  void u24(std::uint32_t value) { keys::put_u24(bytes_, value); }
  void u32(std::uint32_t value) { keys::put_u32(bytes_, value); }
  void i32(std::int32_t value) { keys::put_u32(bytes_, static_cast<std::uint32_t>(value)); }
  void u64(std::uint64_t value) { keys::put_u64(bytes_, value); }
  void i64(std::int64_t value) { keys::put_u64(bytes_, static_cast<std::uint64_t>(value)); }
  void text(std::string_view value) {
    u32(static_cast<std::uint32_t>(value.size()));
    bytes_ += value;
  }
  void raw(std::string_view value) { bytes_ += value; }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class RecordReader {
 public:
  // Takes the version byte, which must be 1 … `newest_version`.
  RecordReader(Place place, std::string_view bytes, std::uint8_t newest_version)
      : place_(place), rest_(bytes) {
    version_ = u8();
    if (version_ == 0 || version_ > newest_version) fail("unknown version byte");
  }

  std::uint8_t version() const { return version_; }
  std::size_t rest_bytes() const { return rest_.size(); }
  std::uint8_t u8() { return static_cast<std::uint8_t>(take(1)[0]); }
  bool boolean() {
    const std::uint8_t value = u8();
    if (value > 1) fail("a flag is neither 0 nor 1");
    return value == 1;
  }
  std::uint32_t u24() { return keys::get_u24(take(3).data()); }
  std::uint32_t u32() { return keys::get_u32(take(4).data()); }
  std::int32_t i32() { return static_cast<std::int32_t>(u32()); }
  std::uint64_t u64() { return keys::get_u64(take(8).data()); }
  std::int64_t i64() { return static_cast<std::int64_t>(u64()); }
  std::string_view text() { return take(u32()); }
  std::string string() { return std::string(text()); }
  std::string_view raw(std::size_t size) { return take(size); }
  std::string_view all() { return take(rest_.size()); }
  // A count of things that take at least `min_bytes` each.
  std::uint32_t count(std::size_t min_bytes) {
    const std::uint32_t value = u32();
    if (value > rest_.size() / min_bytes) fail("a count is larger than the record");
    return value;
  }
  // A number that must lie in `low` … `high`.
  std::uint8_t within(std::uint8_t low, std::uint8_t high) {
    const std::uint8_t value = u8();
    if (value < low || value > high) fail("an unknown value of an enumeration");
    return value;
  }
  void end() {
    if (!rest_.empty()) fail("bytes behind the end");
  }
  [[noreturn]] void fail(std::string_view what) const { throw_damaged(place_, what); }

 private:
  std::string_view take(std::size_t size) {
    if (size > rest_.size()) fail("cut short");
    const std::string_view out = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return out;
  }

  Place place_;
  std::string_view rest_;
  std::uint8_t version_ = 0;
};

}  // namespace batchmill::codec
