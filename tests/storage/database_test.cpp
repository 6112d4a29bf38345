#include "storage/database.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/env.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <thread>

#include "storage/record_codec.h"
#include "storage/repair.h"
#include "storage/store.h"
#include "tests/storage/store_fixture.h"
#include "tests/support/fullable_file_system.h"

namespace batchmill {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class DatabaseTest : public StoreTest {
 protected:
  void TearDown() override { store_.reset(); }  // before env_ goes

  std::string file_with(const std::string& extension) {
    for (const auto& entry : fs::directory_iterator(directory_.path())) {
      if (entry.path().extension() == extension && entry.file_size() > 0) return entry.path();
    }
    ADD_FAILURE() << "no " << extension;
    return {};
  }

  static void damage(const std::string& path, std::size_t at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file.write("\xde\xad\xbe\xef\xde\xad\xbe\xef", 8);
    ASSERT_TRUE(file.good());
  }

  std::optional<StorageError::Kind> open_kind(std::string* message) {
    return error_kind([&] { open(); }, message);
  }

  std::unique_ptr<rocksdb::Env> env_;
};

TEST_F(DatabaseTest, ASecondOpenIsLockedOut) {
  std::string message;
  const auto kind = error_kind(
      [&] { JobStore::open(directory_.path(), small_options(), JobStore::Mode::kReadWrite); },
      &message);
  EXPECT_EQ(kind, StorageError::Kind::kLocked) << message;
}

TEST_F(DatabaseTest, NothingThereIsMissing) {
  const TemporaryDirectory empty;
  EXPECT_EQ(
      error_kind([&] { JobStore::open(empty.path(), small_options(), JobStore::Mode::kReadOnly); }),
      StorageError::Kind::kMissing);
}

TEST_F(DatabaseTest, ANewerStoreIsRefused) {
  store_.reset();
  {
    Database database(directory_.path(), small_options(), false, nullptr);
    rocksdb::WriteBatch batch;
    ASSERT_TRUE(batch.Put(database.handle(Family::kMeta), "schema", codec::encode_number(2)).ok());
    database.write(batch, true);
  }
  std::string message;
  EXPECT_EQ(open_kind(&message), StorageError::Kind::kNewerSchema);
  EXPECT_THAT(message, HasSubstr("schema 2"));
}

TEST_F(DatabaseTest, ADamagedCurrentFileIsNamed) {
  prepared_job(3);
  store_.reset();
  for (const char* text : {"", "MANIFEST-000099\n", "nonsense\n", "no newline"}) {
    std::ofstream(directory_.path() + "/CURRENT", std::ios::trunc) << text;
    std::string message;
    EXPECT_EQ(open_kind(&message), StorageError::Kind::kDamaged) << message;
    EXPECT_THAT(message, HasSubstr(directory_.path()));
  }
  fs::remove(directory_.path() + "/CURRENT");
  std::string message;
  EXPECT_EQ(open_kind(&message), StorageError::Kind::kDamaged);
  EXPECT_THAT(message, HasSubstr("CURRENT is missing"));
}

TEST_F(DatabaseTest, ADamagedTableIsNamed) {
  prepared_job(300);
  store_->flush();
  store_.reset();
  std::vector<std::string> tables;
  for (const auto& entry : fs::directory_iterator(directory_.path())) {
    if (entry.path().extension() == ".sst") tables.push_back(entry.path());
  }
  for (const std::string& table : tables) damage(table, 20);
  std::string message;
  const auto kind = error_kind(
      [&] {
        open();
        store_->check();
      },
      &message);
  EXPECT_EQ(kind, StorageError::Kind::kDamaged) << message;
  EXPECT_THAT(message, HasSubstr(".sst"));
}

// RocksDB then speaks of a "block checksum", which must not be taken for a "lock".
TEST_F(DatabaseTest, ATableWithADamagedIndexIsDamagedNotLocked) {
  prepared_job(300);
  store_->flush();
  store_.reset();
  for (const auto& entry : fs::directory_iterator(directory_.path())) {
    if (entry.path().extension() != ".sst") continue;
    for (std::uint64_t at = 0; at + 200 < entry.file_size(); at += 8) damage(entry.path(), at);
  }
  std::string message;
  EXPECT_EQ(open_kind(&message), StorageError::Kind::kDamaged) << message;
  EXPECT_THAT(message, HasSubstr("block checksum"));
}

TEST_F(DatabaseTest, AMissingTableIsNamed) {
  prepared_job(30);
  store_->flush();
  store_.reset();
  fs::remove(file_with(".sst"));
  std::string message;
  EXPECT_EQ(open_kind(&message), StorageError::Kind::kDamaged) << message;
  EXPECT_THAT(message, HasSubstr(".sst"));
}

TEST_F(DatabaseTest, DamageInsideTheLogIsNamedAndNoLoss) {
  prepared_job(200);
  store_.reset();
  const fs::path log = file_with(".log");
  damage(log, 400);
  std::string message;
  EXPECT_EQ(open_kind(&message), StorageError::Kind::kDamaged) << message;
  EXPECT_THAT(message, HasSubstr(log.filename().string()));
}

TEST_F(DatabaseTest, ADamagedLogCanBeReadUpToTheDamage) {
  const JobId id = prepared_job(200);
  const std::string log = file_with(".log");
  const std::uint64_t before = fs::file_size(log);
  ASSERT_TRUE(finish(id, 1));
  ASSERT_TRUE(finish(id, 2));
  store_.reset();
  damage(log, before + 30);
  EXPECT_EQ(open_kind(nullptr), StorageError::Kind::kDamaged);
  store_ = open_up_to_damage(directory_.path(), small_options());
  EXPECT_FALSE(store_->result({id, 1}));
  EXPECT_EQ(store_->check().plan_entries, 200u);
  expect_sound();
  EXPECT_TRUE(finish(id, 1));
  open();
  EXPECT_TRUE(store_->result({id, 1}));
}

TEST_F(DatabaseTest, ALogCutInItsLastWriteIsNoError) {
  const JobId id = prepared_job(20);
  const std::uint64_t before = fs::file_size(file_with(".log"));
  ASSERT_TRUE(finish(id, 1));
  const TemporaryDirectory copy;
  fs::copy(directory_.path(), copy.path(), fs::copy_options::recursive);
  for (const auto& entry : fs::directory_iterator(copy.path())) {
    if (entry.path().extension() == ".log") fs::resize_file(entry.path(), before + 30);
  }
  const auto store = JobStore::open(copy.path(), small_options(), JobStore::Mode::kReadWrite);
  EXPECT_FALSE(store->result({id, 1}));
  EXPECT_EQ(store->check().problems, std::vector<std::string>());
  EXPECT_EQ(store->check().plan_entries, 20u);
}

TEST_F(DatabaseTest, AFullDiskStopsWritesUntilThereIsSpace) {
  store_.reset();
  const auto file_system = std::make_shared<testing::FullableFileSystem>();
  env_ = rocksdb::NewCompositeEnv(file_system);
  store_ = open_store(directory_.path(), small_options(), JobStore::Mode::kReadWrite, env_.get());
  const JobId id = prepared_job(20);
  ASSERT_TRUE(finish(id, 1));
  file_system->is_full = true;
  for (int i = 0; i < 3; ++i) {
    std::string message;
    EXPECT_EQ(error_kind([&] { finish(id, 2); }, &message), StorageError::Kind::kFull) << message;
    EXPECT_EQ(error_kind([&] { new_job(); }), StorageError::Kind::kFull);
  }
  EXPECT_FALSE(store_->result({id, 2}));
  EXPECT_EQ(store_->job(id)->counters.completed, 1u);
  file_system->is_full = false;
  EXPECT_TRUE(finish(id, 2));
  EXPECT_TRUE(finish(id, 3));
  expect_sound();
  open();
  EXPECT_EQ(store_->job(id)->counters.completed, 3u);
  expect_sound();
}

// A quota, or a file's greatest size.
TEST_F(DatabaseTest, EveryLimitOnSpaceIsAFullDisk) {
  for (const int error : {EFBIG, EDQUOT}) {
    store_.reset();
    const auto file_system = std::make_shared<testing::FullableFileSystem>();
    file_system->trouble = std::strerror(error);
    env_ = rocksdb::NewCompositeEnv(file_system);
    store_ = open_store(directory_.path(), small_options(), JobStore::Mode::kReadWrite, env_.get());
    const JobId id = prepared_job(20);
    ASSERT_TRUE(finish(id, 1));
    file_system->is_broken = true;
    EXPECT_EQ(error_kind([&] { finish(id, 2); }), StorageError::Kind::kFull);
    EXPECT_EQ(error_kind([&] { store_->flush(); }), StorageError::Kind::kFull);
    EXPECT_EQ(store_->why_lost(), "");
    file_system->is_broken = false;
    EXPECT_TRUE(finish(id, 2));
    expect_sound();
  }
}

TEST_F(DatabaseTest, ADiskThatFailsEndsTheStoreInGoodOrder) {
  store_.reset();
  const auto file_system = std::make_shared<testing::FullableFileSystem>();
  file_system->trouble = std::strerror(EIO);
  env_ = rocksdb::NewCompositeEnv(file_system);
  store_ = open_store(directory_.path(), small_options(), JobStore::Mode::kReadWrite, env_.get());
  const JobId id = prepared_job(20);
  ASSERT_TRUE(finish(id, 1));
  file_system->is_broken = true;
  std::string message;
  EXPECT_EQ(error_kind([&] { finish(id, 2); }, &message), StorageError::Kind::kIo);
  EXPECT_EQ(store_->why_lost(), message);
  // Whatever is tried then, and also when the disk has come back: it fails, and no more.
  file_system->is_broken = false;
  EXPECT_EQ(error_kind([&] { finish(id, 2); }), StorageError::Kind::kIo);
  EXPECT_EQ(error_kind([&] { new_job(); }), StorageError::Kind::kIo);
  EXPECT_EQ(error_kind([&] { store_->sync(); }), StorageError::Kind::kIo);
  EXPECT_EQ(error_kind([&] { store_->flush(); }), StorageError::Kind::kIo);
  EXPECT_EQ(store_->job(id)->counters.completed, 1u);
  open();
  EXPECT_EQ(store_->why_lost(), "");
  EXPECT_EQ(store_->job(id)->counters.completed, 1u);
  EXPECT_TRUE(finish(id, 2));
  expect_sound();
}

// RocksDB aborts when it syncs a log whose last write has failed.
TEST_F(DatabaseTest, SyncsBesideWritesThatFailAreNoBrokenInvariant) {
  store_.reset();
  const auto file_system = std::make_shared<testing::FullableFileSystem>();
  env_ = rocksdb::NewCompositeEnv(file_system);
  StorageOptions options = small_options();
  options.sync = true;
  store_ = open_store(directory_.path(), options, JobStore::Mode::kReadWrite, env_.get());
  const JobId id = prepared_job(12);
  std::atomic<bool> done{false};
  std::vector<std::jthread> syncers;
  for (int i = 0; i < 2; ++i) {
    syncers.emplace_back([&] {
      while (!done) {
        try {
          store_->sync();
        } catch (const StorageError& error) {
          EXPECT_EQ(error.kind(), StorageError::Kind::kFull) << error.what();
        }
      }
    });
  }
  for (std::uint64_t line = 1; line <= 12; ++line) {
    file_system->is_full = line % 2 == 0;
    error_kind([&] { finish(id, line); });
    file_system->is_full = false;
    error_kind([&] { finish(id, line); });
  }
  done = true;
  syncers.clear();
  EXPECT_EQ(store_->job(id)->counters.completed, 12u);
  expect_sound();
}

TEST_F(DatabaseTest, RemarksThatCannotBeWrittenAreNoFailure) {
  store_.reset();
  const std::filesystem::path log = directory_.path() + "/LOG";
  std::filesystem::remove(log);
  std::filesystem::create_symlink("/dev/full", log);
  const auto file_system = std::make_shared<testing::FullableFileSystem>();
  env_ = rocksdb::NewCompositeEnv(file_system);
  store_ = open_store(directory_.path(), small_options(), JobStore::Mode::kReadWrite, env_.get());
  const JobId id = prepared_job(20);
  file_system->is_full = true;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(error_kind([&] { finish(id, 1); }), StorageError::Kind::kFull);
  }
  EXPECT_TRUE(std::filesystem::is_symlink(log));
  file_system->is_full = false;
  EXPECT_TRUE(finish(id, 1));
  expect_sound();
}

}  // namespace
}  // namespace batchmill
