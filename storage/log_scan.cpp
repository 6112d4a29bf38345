#include "storage/log_scan.h"

#include <rocksdb/write_batch.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <string_view>
#include <utility>

#include "storage/error.h"
#include "storage/keys.h"

namespace batchmill {
namespace {

namespace fs = std::filesystem;

// A log is blocks of 32 KiB. A record has a head (CRC-32C of what follows, u16 length, u8 type; all
// little-endian) and lies within one block; a batch is one full record or its first, middle and
// last parts. Less than a head at the end of a block is filled with zeros.
constexpr std::size_t kBlockBytes = 32 << 10;
constexpr std::size_t kHeadBytes = 7;
enum RecordType : std::uint8_t { kFull = 1, kFirst = 2, kMiddle = 3, kLast = 4 };
// A batch begins with its first sequence number (8) and how many it takes (4).
constexpr std::size_t kBatchHeadBytes = 12;

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  }
  return value;
}

std::uint32_t crc32c(std::string_view bytes) {
  static const auto kTable = [] {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t i = 0; i < table.size(); ++i) {
      std::uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0x82F63B78u : 0u);
      table[i] = value;
    }
    return table;
  }();
  std::uint32_t crc = ~0u;
  for (const char byte : bytes) {
    crc = kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xff] ^ crc >> 8;
  }
  return ~crc;
}

// RocksDB's disguise of a checksum that is stored beside what it is of.
std::uint32_t masked(std::uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8u; }

// The batches of one log.
class LogReader {
 public:
  enum class Found { kBatch, kBreak, kEnd };

  explicit LogReader(const std::string& path) : path_(path), file_(path, std::ios::binary) {
    if (!file_) fail();
  }

  // kBreak: something that is no part of a batch, which is passed over. What the file ends in is
  // none: a write that was cut off.
  Found next(std::string* batch) {
    bool in_batch = false;
    batch->clear();
    while (true) {
      if (block_.size() - at_ < kHeadBytes && !read_block()) return Found::kEnd;
      const std::size_t size = record_at(at_);
      if (size == 0) {
        const bool is_cut = is_cut_off();
        while (++at_ < block_.size() && record_at(at_) == 0) {
        }
        if (at_ < block_.size() || !is_cut) return Found::kBreak;
        return Found::kEnd;
      }
      const std::string_view record = std::string_view(block_).substr(at_, size);
      const auto type = static_cast<std::uint8_t>(record[6]);
      const bool begins = type == kFull || type == kFirst;
      if (begins == in_batch) {
        // A part without those before it is passed over, a beginning is where to go on.
        if (!begins) at_ += size;
        return Found::kBreak;
      }
      batch->append(record.substr(kHeadBytes));
      at_ += size;
      in_batch = true;
      if (type == kFull || type == kLast) return Found::kBatch;
    }
  }

 private:
  [[noreturn]] void fail() const {
    throw StorageError(StorageError::Kind::kIo, "cannot read " + path_);
  }
  // Bytes of the record there, 0 if there is none.
  std::size_t record_at(std::size_t at) const {
    const std::string_view rest = std::string_view(block_).substr(at);
    if (rest.size() < kHeadBytes) return 0;
    const std::size_t size = little_endian(rest.substr(4, 2));
    const auto type = static_cast<std::uint8_t>(rest[6]);
    if (type < kFull || type > kLast || kHeadBytes + size > rest.size()) return 0;
    const bool is_whole =
        masked(crc32c(rest.substr(6, 1 + size))) == little_endian(rest.substr(0, 4));
    return is_whole ? kHeadBytes + size : 0;
  }
  // The file ends in the middle of the record.
  bool is_cut_off() const {
    const std::string_view rest = std::string_view(block_).substr(at_);
    return block_.size() < kBlockBytes &&
           (rest.size() < kHeadBytes ||
            kHeadBytes + little_endian(rest.substr(4, 2)) > rest.size());
  }
  bool read_block() {
    block_.resize(kBlockBytes);
    file_.read(block_.data(), kBlockBytes);
    if (file_.bad()) fail();
    block_.resize(static_cast<std::size_t>(file_.gcount()));
    at_ = 0;
    return !block_.empty();
  }

  const std::string path_;
  std::ifstream file_;
  std::string block_;
  std::size_t at_ = 0;
};

// What a batch says of the sync before it.
class SyncedNumber : public rocksdb::WriteBatch::Handler {
 public:
  rocksdb::Status PutCF(std::uint32_t, const rocksdb::Slice& key,
                        const rocksdb::Slice& value) override {
    // A version byte and the number, big-endian. Nothing may be thrown through RocksDB.
    if (key.ToStringView() == keys::kSynced && value.size() == 9) {
      std::uint64_t number = 0;
      for (std::size_t i = 1; i < value.size(); ++i) {
        number = number << 8 | static_cast<unsigned char>(value[i]);
      }
      number_ = std::max(number, number_.value_or(0));
    }
    return {};
  }
  rocksdb::Status DeleteCF(std::uint32_t, const rocksdb::Slice&) override { return {}; }
  rocksdb::Status DeleteRangeCF(std::uint32_t, const rocksdb::Slice&,
                                const rocksdb::Slice&) override {
    return {};
  }
  rocksdb::Status MergeCF(std::uint32_t, const rocksdb::Slice&, const rocksdb::Slice&) override {
    return {};
  }
  void LogData(const rocksdb::Slice&) override {}

  // The largest so far.
  std::optional<std::uint64_t> number() const { return number_; }

 private:
  std::optional<std::uint64_t> number_;
};

std::map<std::uint64_t, std::string> logs_in(const std::string& directory,
                                             std::uint64_t first_log) {
  std::map<std::uint64_t, std::string> logs;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() != ".log") continue;
    const std::string stem = it->path().stem().string();
    std::uint64_t number = 0;
    const auto [last, fault] = std::from_chars(stem.data(), stem.data() + stem.size(), number);
    if (fault != std::errc() || last != stem.data() + stem.size() || number < first_log) continue;
    logs.emplace(number, it->path().string());
  }
  return logs;
}

// Follows the sequence through all logs.
class Scan {
 public:
  void read(std::uint64_t number, const std::string& path) {
    LogReader reader(path);
    std::string bytes;
    std::uint64_t num_batches = 0;
    bool is_first = true;
    while (true) {
      const LogReader::Found found = reader.next(&bytes);
      if (found == LogReader::Found::kEnd) return;
      if (found == LogReader::Found::kBreak || bytes.size() < kBatchHeadBytes) {
        if (!tear_) tear_at(number, path, num_batches);
      } else {
        add(number, path, num_batches, bytes, is_first);
        ++num_batches;
      }
      is_first = false;
    }
  }

  std::optional<LogTear> result(bool names_syncs) const {
    if (!tear_ || (!any_ && !names_syncs)) return std::nullopt;
    LogTear tear = *tear_;
    // Where nothing is readable before the tear, a sync since the log began shows as a change.
    tear.promised = last_ == 0 ? least_behind_ < most_behind_ : most_behind_ > last_;
    return tear;
  }

 private:
  void tear_at(std::uint64_t log, const std::string& path, std::uint64_t num_batches) {
    tear_ = LogTear{log, fs::path(path).filename().string(), num_batches, false};
  }

  void add(std::uint64_t log, const std::string& path, std::uint64_t num_batches,
           const std::string& bytes, bool is_first) {
    const std::uint64_t sequence = little_endian(std::string_view(bytes).substr(0, 8));
    const std::uint64_t count = little_endian(std::string_view(bytes).substr(8, 4));
    // A store that was opened over a tear goes on from it in a new log.
    if (tear_ && is_first && log != tear_->log && last_ != 0 && sequence <= last_ + 1) {
      tear_.reset();
      least_behind_ = UINT64_MAX;
      most_behind_ = 0;
    }
    if (!tear_ && last_ != 0 && sequence > last_ + 1) tear_at(log, path, num_batches);
    SyncedNumber synced;
    rocksdb::WriteBatch(bytes).Iterate(&synced).PermitUncheckedError();
    any_ = any_ || synced.number().has_value();
    if (!tear_) {
      last_ = std::max(last_, sequence + count - std::min<std::uint64_t>(count, 1));
    } else if (synced.number()) {
      least_behind_ = std::min(least_behind_, *synced.number());
      most_behind_ = std::max(most_behind_, *synced.number());
    }
  }

  std::optional<LogTear> tear_;
  std::uint64_t last_ = 0;  // the last number before the tear; 0: none is known
  std::uint64_t least_behind_ = UINT64_MAX;  // synced numbers behind it
  std::uint64_t most_behind_ = 0;
  bool any_ = false;  // synced numbers at all
};

}  // namespace

std::optional<LogTear> find_log_tear(const std::string& directory, std::uint64_t first_log,
                                     bool names_syncs) {
  Scan scan;
  for (const auto& [number, path] : logs_in(directory, first_log)) scan.read(number, path);
  return scan.result(names_syncs);
}

}  // namespace batchmill
