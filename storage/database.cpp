#include "storage/database.h"

#include <rocksdb/cache.h>
#include <rocksdb/env.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/listener.h>
#include <rocksdb/table.h>
#include <rocksdb/utilities/table_properties_collectors.h>
#include <rocksdb/write_buffer_manager.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "storage/info_log.h"
#include "storage/keys.h"
#include "storage/log_scan.h"
#include "storage/sum_operator.h"

namespace batchmill {
namespace {

constexpr std::array<std::string_view, kNumFamilies> kNames = {
    "meta", "jobs", "lines", "ids", "plan", "prompts", "attempts", "results", "done", "ledger"};

// Few, so that each holds many blocks: 4 MiB of the default cache.
constexpr int kCacheShareBits = 4;
// The part of the cache in which indexes and filters outlive data.
constexpr double kCacheForIndexes = 0.5;

rocksdb::Slice slice(std::string_view bytes) { return {bytes.data(), bytes.size()}; }

rocksdb::CompressionType compression_of(const std::string& name) {
  if (name == "none") return rocksdb::kNoCompression;
  if (name == "lz4") return rocksdb::kLZ4Compression;
  if (name == "zstd") return rocksdb::kZSTD;
  throw StorageError(StorageError::Kind::kIo,
                     "storage.compression is \"none\", \"lz4\" or \"zstd\", not \"" + name + "\"");
}

rocksdb::ColumnFamilyOptions family_options(Family family, const StorageOptions& options,
                                            const std::shared_ptr<rocksdb::Cache>& cache) {
  // Deletions among this many entries in a row mark a file for compaction.
  constexpr std::size_t kDeletionWindow = 4096;
  constexpr std::size_t kDeletionTrigger = 2048;
  constexpr std::uint64_t kPlanBufferBytes = 16ull << 20;
  rocksdb::ColumnFamilyOptions out;
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = cache;
  table.cache_index_and_filter_blocks = true;
  table.pin_l0_filter_and_index_blocks_in_cache = true;
  // In parts: the index or filter of a large table is larger than a share of the cache, which would
  // not keep it, so that every look-up would read it from the file again.
  table.index_type = rocksdb::BlockBasedTableOptions::kTwoLevelIndexSearch;
  table.partition_filters = true;
  table.format_version = 5;
  table.block_size = 16 << 10;
  out.write_buffer_size = std::max<std::uint64_t>(options.write_buffer_bytes / 4, 1 << 20);
  out.level_compaction_dynamic_level_bytes = true;
  const rocksdb::CompressionType bottom = compression_of(options.compression);
  out.compression = bottom == rocksdb::kZSTD ? rocksdb::kLZ4Compression : bottom;
  out.bottommost_compression = bottom;
  switch (family) {
    case Family::kIds:
    case Family::kResults:
    case Family::kAttempts:
      // Most look-ups are for keys that are not there.
      table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
      break;
    case Family::kLines:
      // Numbers only grow, so no two files overlap: many that wait for compaction slow no reader,
      // and need not slow the writer.
      out.level0_slowdown_writes_trigger = 64;
      out.level0_stop_writes_trigger = 128;
      // Lines come faster than one buffer is written to a file.
      out.max_write_buffer_number = 4;
      break;
    case Family::kPlan:
      // The cursor sweeps right behind what it deletes: small buffers and eager compaction keep
      // the deleted keys that a seek must step over few.
      out.write_buffer_size = std::min<std::uint64_t>(out.write_buffer_size, kPlanBufferBytes);
      out.max_write_buffer_number = 4;
      out.table_properties_collector_factories.push_back(
          rocksdb::NewCompactOnDeletionCollectorFactory(kDeletionWindow, kDeletionTrigger, 0.5));
      break;
    case Family::kJobs:
    case Family::kLedger:
      out.merge_operator = make_sum_operator();
      // Sums that wait in memory are added up now and then, so that reading them stays cheap.
      out.max_successive_merges = 16;
      break;
    default:
      break;
  }
  out.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return out;
}

class ErrorListener : public rocksdb::EventListener {
 public:
  explicit ErrorListener(std::shared_ptr<std::atomic<std::uint64_t>> num_errors)
      : num_errors_(std::move(num_errors)) {}

  // Told of a log that cannot be written or synced before anyone else may sync it.
  void OnBackgroundError(rocksdb::BackgroundErrorReason /*reason*/,
                         rocksdb::Status* /*error*/) override {
    ++*num_errors_;
  }
  // Left alone, RocksDB waits on a thread of its own for space and refuses Resume meanwhile. Here
  // the next write resumes, so it succeeds as soon as there is space.
  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason /*reason*/, rocksdb::Status /*error*/,
                            bool* auto_recovery) override {
    *auto_recovery = false;
  }

 private:
  const std::shared_ptr<std::atomic<std::uint64_t>> num_errors_;
};

rocksdb::DBOptions database_options(const StorageOptions& options, bool read_only,
                                    rocksdb::Env* env, Database::DamagedLog damaged_log) {
  rocksdb::DBOptions out;
  out.env = env;
  out.create_if_missing = !read_only;
  out.create_missing_column_families = !read_only;
  out.paranoid_checks = true;
  // A log may end in the middle of a write that nobody was told of; damage before that is an error,
  // never a silent loss of what was acknowledged.
  out.wal_recovery_mode = damaged_log == Database::DamagedLog::kReadUpToDamage
                              ? rocksdb::WALRecoveryMode::kPointInTimeRecovery
                              : rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
  out.max_total_wal_size = options.max_total_wal_bytes;
  out.write_buffer_manager =
      std::make_shared<rocksdb::WriteBufferManager>(options.write_buffer_bytes);
  out.max_open_files = options.max_open_files;
  out.max_background_jobs = 2;
  if (options.compaction_yields) {  // where it cannot, it does not
    out.env->LowerThreadPoolCPUPriority(rocksdb::Env::LOW, rocksdb::CpuPriority::kLow)
        .PermitUncheckedError();
  }
  out.bytes_per_sync = 1 << 20;
  out.max_bgerror_resume_count = 0;
  out.stats_dump_period_sec = 0;
  out.stats_persist_period_sec = 0;
  return out;
}

// Lets the logs be read up to a tear.
class TearFilter : public rocksdb::WalFilter {
 public:
  explicit TearFilter(LogTear tear) : tear_(std::move(tear)) {}
  WalProcessingOption LogRecordFound(unsigned long long log, const std::string& /*file*/,
                                     const rocksdb::WriteBatch& /*batch*/,
                                     rocksdb::WriteBatch* /*new_batch*/,
                                     bool* /*changed*/) override {
    const bool is_good =
        log < tear_.log || (log == tear_.log && num_batches_++ < tear_.num_batches);
    return is_good ? WalProcessingOption::kContinueProcessing : WalProcessingOption::kStopReplay;
  }
  const char* Name() const override { return "batchmill.tear"; }

 private:
  const LogTear tear_;
  std::uint64_t num_batches_ = 0;
};

// Learns which log comes first: what is left of those before it is in tables already.
class FirstLogFilter : public rocksdb::WalFilter {
 public:
  void ColumnFamilyLogNumberMap(const std::map<std::uint32_t, std::uint64_t>& logs,
                                const std::map<std::string, std::uint32_t>& /*names*/) override {
    for (const auto& [family, log] : logs) first_ = first_ == 0 ? log : std::min(first_, log);
  }
  WalProcessingOption LogRecordFound(unsigned long long log, const std::string& /*file*/,
                                     const rocksdb::WriteBatch& /*batch*/,
                                     rocksdb::WriteBatch* /*new_batch*/,
                                     bool* /*changed*/) override {
    first_ = log;
    return WalProcessingOption::kStopReplay;
  }
  const char* Name() const override { return "batchmill.first_log"; }
  std::uint64_t first() const { return first_; }

 private:
  std::uint64_t first_ = 0;
};

// Where the logs that the database needs are torn.
std::optional<LogTear> find_tear(rocksdb::DBOptions options, const std::string& directory,
                                 const std::vector<rocksdb::ColumnFamilyDescriptor>& families) {
  if (!find_log_tear(directory, 0, true)) return std::nullopt;
  // What the tables alone say.
  FirstLogFilter filter;
  options.wal_filter = &filter;
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
  options.create_if_missing = options.create_missing_column_families = false;
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  rocksdb::DB* opened = nullptr;
  const rocksdb::Status status =
      rocksdb::DB::OpenForReadOnly(options, directory, families, &handles, &opened);
  if (!status.ok()) return std::nullopt;  // opening it tells why
  const std::unique_ptr<rocksdb::DB> db(opened);
  std::string value;
  const bool names_syncs =
      db->Get(rocksdb::ReadOptions(), handles[static_cast<std::size_t>(Family::kMeta)],
              slice(keys::kSynced), &value)
          .ok();
  for (rocksdb::ColumnFamilyHandle* handle : handles) {
    db->DestroyColumnFamilyHandle(handle).PermitUncheckedError();
  }
  return find_log_tear(directory, filter.first(), names_syncs);
}

// Data files without the file that names them: RocksDB would start an empty database over them.
void refuse_headless(const std::string& directory) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::exists(fs::path(directory) / "CURRENT", error)) return;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string extension = it->path().extension().string();
    if (extension == ".sst" || extension == ".log") {
      throw StorageError(StorageError::Kind::kDamaged, "the store is damaged: " + directory +
                                                           "/CURRENT is missing beside " +
                                                           it->path().filename().string());
    }
  }
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

std::string_view family_name(Family family) { return kNames[static_cast<std::size_t>(family)]; }

Database::Database(const std::string& directory, const StorageOptions& options, bool read_only,
                   rocksdb::Env* env, DamagedLog damaged_log)
    : directory_(directory),
      options_(options),
      cache_(rocksdb::NewLRUCache(options.block_cache_bytes, kCacheShareBits,
                                  /*strict_capacity_limit=*/false, kCacheForIndexes)),
      info_log_(std::make_shared<InfoLog>(read_only ? "" : directory)),
      read_only_(read_only),
      sync_(options.sync) {
  refuse_headless(directory);
  env_ = rocksdb::NewCompositeEnv(std::make_shared<StoreFiles>(
      env != nullptr ? env->GetFileSystem() : rocksdb::FileSystem::Default(), directory,
      log_gate_));
  std::error_code error;
  if (read_only && !std::filesystem::exists(directory + "/CURRENT", error)) {
    throw StorageError(StorageError::Kind::kMissing, "there is no store in " + directory);
  }
  std::vector<rocksdb::ColumnFamilyDescriptor> families;
  for (std::size_t i = 0; i < kNumFamilies; ++i) {
    families.emplace_back(std::string(kNames[i]),
                          family_options(static_cast<Family>(i), options, cache_));
    // A compaction that meets a damaged table fails all writes, those of a repair too.
    families.back().options.disable_auto_compactions = damaged_log == DamagedLog::kReadUpToDamage;
  }
  families.emplace_back(rocksdb::kDefaultColumnFamilyName, rocksdb::ColumnFamilyOptions());
  rocksdb::DBOptions db_options = database_options(options, read_only, env_.get(), damaged_log);
  db_options.info_log = info_log_;
  db_options.listeners.push_back(std::make_shared<ErrorListener>(num_errors_));
  const std::optional<LogTear> tear = find_tear(db_options, directory, families);
  if (tear && tear->promised && damaged_log == DamagedLog::kRefuse) {
    throw StorageError(StorageError::Kind::kDamaged, "the store in " + directory + " is damaged (" +
                                                         tear->file_name +
                                                         " lacks what was synced)");
  }
  if (tear) {
    db_options.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
    log_filter_ = std::make_unique<TearFilter>(*tear);
    db_options.wal_filter = log_filter_.get();
  }
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  rocksdb::DB* db = nullptr;
  const rocksdb::Status status =
      read_only ? rocksdb::DB::OpenForReadOnly(db_options, directory, families, &handles, &db)
                : rocksdb::DB::Open(db_options, directory, families, &handles, &db);
  if (!status.ok()) fail(status, true);
  db_.reset(db);
  std::copy_n(handles.begin(), kNumFamilies, handles_.begin());
  db_->DestroyColumnFamilyHandle(handles.back());
  // What was in logs is in tables now.
  synced_sequence_ = db_->GetLatestSequenceNumber();
}

Database::~Database() {
  if (db_ == nullptr) return;
  for (rocksdb::ColumnFamilyHandle* handle : handles_) db_->DestroyColumnFamilyHandle(handle);
  // What is not synced is in the log already; closing reports nothing that a caller could act on.
  db_->Close().PermitUncheckedError();
}

void Database::fail(const rocksdb::Status& status, bool opening) const {
  using Kind = StorageError::Kind;
  std::string text = status.ToString();
  // A table that is missing under its name is looked for under LevelDB's, which is then reported.
  const std::size_t level_db_name = text.find(".ldb");
  if (level_db_name != std::string::npos) text.replace(level_db_name, 4, ".sst");
  if (opening && !info_log_->damaged_log().empty()) text += "; " + info_log_->damaged_log();
  const auto fail_as = [&](Kind kind, const std::string& what) {
    throw StorageError(kind, what + " (" + text + ")");
  };
  if (status.IsNoSpace() || contains(text, "No space left")) {
    fail_as(Kind::kFull, "no space left for the store in " + directory_);
  }
  if (contains(text, "Permission denied") || contains(text, "Read-only file system")) {
    fail_as(Kind::kFull, "the store in " + directory_ + " cannot be written");
  }
  // "While lock file", or "lock hold by current process".
  if (opening && status.IsIOError() &&
      (contains(text, "lock file") || contains(text, "lock hold"))) {
    fail_as(Kind::kLocked, "the store in " + directory_ + " is in use by another process");
  }
  // A file that the database names must be there and be whole.
  if (status.IsCorruption() || (opening && (status.IsInvalidArgument() || status.IsNotFound() ||
                                            contains(text, "No such file")))) {
    fail_as(Kind::kDamaged, "the store in " + directory_ + " is damaged");
  }
  fail_as(Kind::kIo, "the store in " + directory_ + " failed");
  __builtin_unreachable();
}

void Database::check(const rocksdb::Status& status) const {
  if (!status.ok()) fail(status, false);
}

std::optional<std::string> Database::get(Family family, std::string_view key,
                                         const rocksdb::Snapshot* snapshot) const {
  rocksdb::ReadOptions options;
  options.snapshot = snapshot;
  std::string value;
  const rocksdb::Status status = db_->Get(options, handle(family), slice(key), &value);
  if (status.IsNotFound()) return std::nullopt;
  if (!status.ok()) fail(status, false);
  return value;
}

std::vector<std::optional<std::string>> Database::get_many(
    Family family, const std::vector<std::string>& keys, const rocksdb::Snapshot* snapshot) const {
  rocksdb::ReadOptions options;
  options.snapshot = snapshot;
  std::vector<rocksdb::Slice> slices;
  for (const std::string& key : keys) slices.push_back(slice(key));
  std::vector<rocksdb::PinnableSlice> values(keys.size());
  std::vector<rocksdb::Status> statuses(keys.size());
  db_->MultiGet(options, handle(family), keys.size(), slices.data(), values.data(),
                statuses.data());
  std::vector<std::optional<std::string>> found(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (statuses[i].IsNotFound()) continue;
    if (!statuses[i].ok()) fail(statuses[i], false);
    found[i] = values[i].ToString();
  }
  return found;
}

Database::Cursor::Cursor(const Database& database, Family family, std::string_view begin,
                         std::string_view end, const rocksdb::Snapshot* snapshot, bool reverse)
    : database_(database),
      lower_(begin),
      upper_(end),
      lower_slice_(slice(lower_)),
      upper_slice_(slice(upper_)) {
  rocksdb::ReadOptions options;
  options.snapshot = snapshot;
  options.iterate_lower_bound = &lower_slice_;
  if (!upper_.empty()) options.iterate_upper_bound = &upper_slice_;
  iterator_.reset(database.db().NewIterator(options, database.handle(family)));
  if (reverse) {
    iterator_->SeekToLast();
  } else {
    iterator_->SeekToFirst();
  }
}

bool Database::Cursor::valid() {
  if (iterator_->Valid()) return true;
  database_.check(iterator_->status());
  return false;
}

void Database::Cursor::seek(std::string_view target) { iterator_->Seek(slice(target)); }

std::uint64_t Database::approximate_bytes(Family family, std::string_view begin,
                                          std::string_view end) const {
  const rocksdb::Range range(slice(begin), slice(end));
  rocksdb::SizeApproximationOptions options;
  options.include_memtables = true;
  options.include_files = true;
  std::uint64_t bytes = 0;
  check(db_->GetApproximateSizes(options, handle(family), &range, 1, &bytes));
  return bytes;
}

void Database::clear(Family family) {
  rocksdb::ColumnFamilyHandle*& handle = handles_[static_cast<std::size_t>(family)];
  check(db_->DropColumnFamily(handle));
  check(db_->DestroyColumnFamilyHandle(handle));
  handle = nullptr;
  check(db_->CreateColumnFamily(family_options(family, options_, cache_),
                                std::string(family_name(family)), &handle));
}

void Database::flush(Family family, bool wait) {
  rocksdb::FlushOptions options;
  options.wait = wait;
  options.allow_write_stall = true;  // otherwise it waits for a moment without one
  const rocksdb::Status status = db_->Flush(options, handle(family));
  // Without waiting it is only a help; what is wrong comes back with the next write.
  if (wait) check(status);
}

void Database::flush_all() {
  sync();
  flush_families();
}

void Database::flush_families() {
  for (std::size_t i = 0; i < kNumFamilies; ++i) flush(static_cast<Family>(i), true);
}

}  // namespace batchmill
