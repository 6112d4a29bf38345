#include "engine/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <system_error>

#include "tests/engine/temporary_file.h"

namespace batchmill {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TemporaryFile;

const std::string kTinyModel = BATCHMILL_TEST_DATA "/models/llama3/model-q4_0.gguf";

std::string content_of(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream content;
  content << stream.rdbuf();
  return content.str();
}

TEST(ModelTest, OpensWhatPreparingLinesNeeds) {
  const auto model = Model::open(kTinyModel);
  EXPECT_EQ(model->path(), kTinyModel);
  EXPECT_EQ(model->config().vocab_size, 384);
  ASSERT_NE(model->tokenizer(), nullptr);
  EXPECT_EQ(model->tokenizer()->decode(model->tokenizer()->encode("the sack", false), false),
            "the sack");
  ASSERT_NE(model->chat_template(), nullptr);
  // The file's own end token, then the end of a turn.
  EXPECT_THAT(model->eos_token_ids(), ElementsAre(0, 2));
  EXPECT_EQ(model->generation_defaults().temperature, std::nullopt);
}

TEST(ModelTest, FingerprintFollowsTheBytesAndNotThePath) {
  const std::string bytes = content_of(kTinyModel);
  const auto model = Model::open(kTinyModel);
  EXPECT_EQ(model->fingerprint().size(), 16u);
  const TemporaryFile copy(bytes);
  EXPECT_EQ(Model::open(copy.path())->fingerprint(), model->fingerprint());
  std::string changed = bytes;
  changed.back() = static_cast<char>(changed.back() ^ 1);
  const TemporaryFile other(changed);
  EXPECT_NE(Model::open(other.path())->fingerprint(), model->fingerprint());
}

TEST(ModelTest, NamesTheFileThatCannotBeOpened) {
  EXPECT_THROW((void)Model::open("/nonexistent.gguf"), std::system_error);
  const TemporaryFile half(content_of(kTinyModel).substr(0, 100000));
  try {
    (void)Model::open(half.path());
    FAIL() << "it opened";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr(half.path() + ": damaged GGUF file: tensor "));
  }
}

}  // namespace
}  // namespace batchmill
