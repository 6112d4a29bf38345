#include "tools/submission.h"

#include <gtest/gtest.h>

#include "queue/input_stream.h"
#include "tests/support/temporary_directory.h"
#include "tools/exit_code.h"

namespace batchmill {
namespace {

class SubmissionTest : public testing::Test {
 protected:
  SubmissionTest() { flags_.file = directory_.write("in.jsonl", "{}\n"); }

  int exit_code() const {
    try {
      Submission submission(flags_);
      return kExitDone;
    } catch (const ToolError& error) {
      return error.exit_code();
    }
  }

  const TemporaryDirectory directory_;
  SubmissionFlags flags_;
};

TEST_F(SubmissionTest, ChecksDeadlineAndMetadata) {
  EXPECT_EQ(exit_code(), kExitDone);
  flags_.deadline = "24h";
  flags_.metadata = {"a=", "b=x=y"};
  EXPECT_EQ(exit_code(), kExitDone);
  flags_.deadline = "tomorrow";
  EXPECT_EQ(exit_code(), kExitUsage);
  flags_.deadline = "";
  flags_.metadata = {"=x"};
  EXPECT_EQ(exit_code(), kExitUsage);
}

TEST_F(SubmissionTest, RefusesAMissingFile) {
  flags_.file = directory_.path("none");
  EXPECT_THROW(Submission{flags_}, InputError);
}

TEST_F(SubmissionTest, TheHashIsTheContentS) {
  Submission submission(flags_);
  const std::unique_ptr<InputStream> input = InputStream::open(flags_.file);
  EXPECT_EQ(submission.content_hash(), content_hash(*input));
}

TEST(ShellQuotedTest, QuotesWhatAShellWouldChange) {
  EXPECT_EQ(shell_quoted("plain-1.jsonl"), "plain-1.jsonl");
  EXPECT_EQ(shell_quoted(""), "''");
  EXPECT_EQ(shell_quoted("a b"), "'a b'");
  EXPECT_EQ(shell_quoted("it's $HOME"), "'it'\\''s $HOME'");
}

TEST(RandomKeyTest, NeverComesTwice) { EXPECT_NE(random_key(), random_key()); }

}  // namespace
}  // namespace batchmill
