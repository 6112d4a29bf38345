#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <system_error>

#include "engine/gguf.h"
#include "engine/model.h"
#include "tests/engine/gguf_split.h"
#include "tests/support/temporary_directory.h"

namespace batchmill {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using B = testing::GgufBuilder;
using testing::add_split_keys;
using testing::part_name;

constexpr int kParts = 3;

class GgufPartsTest : public ::testing::Test {
 protected:
  void SetUp() override { testing::write_parts(whole_, kParts, folder_); }

  std::string part(int index) const { return (folder_ / part_name(index, kParts)).string(); }

  // Puts another part in the place of one.
  void replace(int place, int index, int count, std::size_t num_tensors,
               const std::string& tensor) const {
    B b;
    add_split_keys(&b, index, count, num_tensors);
    b.tensor(tensor, {8}, 0, 0);
    b.data.assign(32, 'd');
    std::ofstream(part(place), std::ios::binary | std::ios::trunc) << b.bytes();
  }

  std::string error_of(const std::string& path) const {
    try {
      const GgufFile file(path);
    } catch (const std::runtime_error& error) {
      EXPECT_THAT(error.what(), HasSubstr(folder_.string()));
      return error.what();
    }
    return "";
  }

  const GgufFile whole_{BATCHMILL_TEST_DATA "/models/llama3/model-q4_0.gguf"};
  const TemporaryDirectory temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(GgufPartsTest, TheFirstPartOpensTheWholeModel) {
  const GgufFile file(part(0));
  ASSERT_EQ(file.tensors().size(), whole_.tensors().size());
  for (const GgufTensor& expected : whole_.tensors()) {
    const GgufTensor& tensor = file.tensor(expected.name);
    EXPECT_EQ(tensor.type, expected.type);
    EXPECT_EQ(tensor.dims, expected.dims);
    EXPECT_TRUE(std::equal(tensor.bytes.begin(), tensor.bytes.end(), expected.bytes.begin(),
                           expected.bytes.end()))
        << expected.name;
  }
  EXPECT_EQ(file.string("general.architecture"), "llama");
  const auto model = Model::open(part(0));
  EXPECT_EQ(model->config().num_layers, 2);
  EXPECT_NE(model->tokenizer(), nullptr);
}

TEST_F(GgufPartsTest, TheHashFollowsTheBytesOfEveryPart) {
  const std::uint64_t before = GgufFile(part(0)).content_hash();
  EXPECT_EQ(GgufFile(part(0)).content_hash(), before);
  std::fstream last(part(kParts - 1), std::ios::binary | std::ios::in | std::ios::out);
  last.seekp(-1, std::ios::end);
  last.put('\x55');
  last.close();
  EXPECT_NE(GgufFile(part(0)).content_hash(), before);
}

TEST_F(GgufPartsTest, ALaterPartNamesTheFirst) {
  EXPECT_THAT(error_of(part(1)),
              AllOf(HasSubstr("part 2 of 3"), HasSubstr("open the first: " + part(0))));
}

TEST_F(GgufPartsTest, AMissingPartIsNamed) {
  fs::remove(part(2));
  EXPECT_THROW(GgufFile{part(0)}, std::system_error);
  EXPECT_THAT(error_of(part(0)),
              AllOf(HasSubstr("part 3 of 3, " + part(2)), HasSubstr("No such file")));
}

TEST_F(GgufPartsTest, ADamagedPartIsNamed) {
  fs::resize_file(part(1), fs::file_size(part(1)) - 1);
  EXPECT_THAT(error_of(part(0)), AllOf(HasSubstr(part(1)), HasSubstr("damaged GGUF file")));
}

TEST_F(GgufPartsTest, APartOfAnotherModelIsRefused) {
  const std::size_t num_tensors = whole_.tensors().size();
  const auto foreign = AllOf(HasSubstr(part(1)), HasSubstr("not part 2 of 3"), HasSubstr(part(0)));
  replace(1, 2, kParts, num_tensors, "x");
  EXPECT_THAT(error_of(part(0)), foreign);
  replace(1, 1, kParts + 1, num_tensors, "x");
  EXPECT_THAT(error_of(part(0)), foreign);
  replace(1, 1, kParts, num_tensors + 1, "x");
  EXPECT_THAT(error_of(part(0)), foreign);
  // A whole model of its own in the place of a part.
  fs::copy_file(BATCHMILL_TEST_DATA "/models/llama3/model-q8_0.gguf", part(1),
                fs::copy_options::overwrite_existing);
  EXPECT_THAT(error_of(part(0)), foreign);
  replace(1, 1, kParts, num_tensors, "x");
  EXPECT_THAT(error_of(part(0)), HasSubstr("tensors, the model has"));
  const std::string first(whole_.tensors().front().name);
  replace(1, 1, kParts, num_tensors, first);
  EXPECT_THAT(error_of(part(0)), HasSubstr("'" + first + "' is in an earlier part too"));
}

TEST_F(GgufPartsTest, AFirstPartOfAnotherNameSaysWhyItCannotBeUsed) {
  const std::string renamed = (folder_ / "renamed.gguf").string();
  fs::rename(part(0), renamed);
  EXPECT_THAT(error_of(renamed),
              AllOf(HasSubstr("part 1 of 3"), HasSubstr("does not end with -00001-of-00003.gguf")));
}

TEST_F(GgufPartsTest, NumbersThatCannotBeAreRefused) {
  replace(0, 3, kParts, 1, "x");
  EXPECT_THAT(error_of(part(0)), HasSubstr("damaged GGUF file: it says it is part 4 of 3"));
}

TEST_F(GgufPartsTest, AModelInOnePartIsAsGoodAsUnsplit) {
  replace(0, 0, 1, 1, "x");
  EXPECT_EQ(GgufFile(part(0)).tensors().size(), 1u);
}

}  // namespace
}  // namespace batchmill
