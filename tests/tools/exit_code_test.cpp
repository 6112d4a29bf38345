#include "tools/exit_code.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "storage/database.h"
#include "storage/job_store.h"
#include "storage/record_codec.h"
#include "tests/storage/store_fixture.h"

namespace batchmill {
namespace {

using ::testing::HasSubstr;

int exit_code_of(StorageError::Kind kind) {
  return run_guarded("test", [&]() -> int { throw StorageError(kind, "the store"); });
}

TEST(ExitCodeTest, AStoreThatCannotBeUsedIsFive) {
  using Kind = StorageError::Kind;
  for (const Kind kind :
       {Kind::kLocked, Kind::kDamaged, Kind::kFull, Kind::kNewerSchema, Kind::kIo}) {
    EXPECT_EQ(exit_code_of(kind), kExitStore) << static_cast<int>(kind);
  }
  EXPECT_EQ(exit_code_of(Kind::kMissing), kExitNotFound);
}

TEST(ExitCodeTest, AStoreOfANewerProgramIsFiveForAll) {
  const TemporaryDirectory directory;
  JobStore::open(directory.path(), small_options(), JobStore::Mode::kReadWrite);
  {
    Database database(directory.path(), small_options(), false, nullptr);
    rocksdb::WriteBatch batch;
    ASSERT_TRUE(batch.Put(database.handle(Family::kMeta), "schema", codec::encode_number(9)).ok());
    database.write(batch, true);
  }
  for (const JobStore::Mode mode : {JobStore::Mode::kReadWrite, JobStore::Mode::kReadOnly}) {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(run_guarded("test",
                          [&] {
                            JobStore::open(directory.path(), small_options(), mode);
                            return 0;
                          }),
              kExitStore);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("schema 9, this one knows 1"));
  }
}

}  // namespace
}  // namespace batchmill
