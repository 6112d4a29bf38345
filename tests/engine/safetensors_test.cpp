#include "engine/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <system_error>

#include "engine/safetensors_floats.h"
#include "tests/engine/safetensors_builder.h"
#include "tests/engine/temporary_file.h"

namespace batchmill {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::SafetensorsBuilder;
using testing::TemporaryFile;

SafetensorsBuilder small_file() {
  SafetensorsBuilder builder;
  builder.floats("matrix", {2, 3}, {1, 2, 3, 4, 5, 6});
  builder.array("empty", "U8", {0, 4}, "");
  builder.array("halves", "F16", {2}, std::string("\x00\x3c\x00\xc0", 4));
  builder.array("brains", "BF16", {2}, std::string("\x80\x3f\x00\xc0", 4));
  builder.header["__metadata__"] = {{"format", "pt"}};
  return builder;
}

std::string error_of(const std::string& bytes) {
  const TemporaryFile file(bytes);
  try {
    const SafetensorsFile opened(file.path());
    return "";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr(file.path() + ": "));
    return error.what();
  }
}

// The error of small_file() with `change` applied to the description of "matrix".
template <typename Change>
std::string error_with(Change change) {
  SafetensorsBuilder builder = small_file();
  change(builder.header["matrix"]);
  return error_of(builder.bytes());
}

TEST(SafetensorsTest, ListsArraysInFileOrder) {
  const TemporaryFile file(small_file().bytes());
  const SafetensorsFile opened(file.path());
  ASSERT_EQ(opened.tensors().size(), 4u);
  const SafetensorsTensor& matrix = opened.tensors()[0];
  EXPECT_EQ(matrix.name, "matrix");
  EXPECT_EQ(matrix.dtype, "F32");
  EXPECT_THAT(matrix.shape, ElementsAre(2, 3));
  EXPECT_EQ(matrix.num_elements(), 6);
  EXPECT_EQ(opened.tensors()[1].name, "empty");
  EXPECT_EQ(opened.tensors()[1].num_elements(), 0);
  EXPECT_EQ(opened.tensors()[3].name, "brains");
}

TEST(SafetensorsTest, ReadsFloatsOfThreeTypes) {
  const TemporaryFile file(small_file().bytes());
  const SafetensorsFile opened(file.path());
  std::vector<float> row(3);
  read_floats(opened.tensors()[0], 3, 3, row.data());
  EXPECT_THAT(row, ElementsAre(4, 5, 6));
  opened.release(opened.tensors()[0]);
  read_floats(opened.tensors()[0], 0, 3, row.data());
  EXPECT_THAT(row, ElementsAre(1, 2, 3));
  for (const std::size_t index : {2u, 3u}) {
    row.assign(2, 0.0f);
    read_floats(opened.tensors()[index], 0, 2, row.data());
    EXPECT_THAT(row, ElementsAre(1, -2)) << index;
  }
  EXPECT_FALSE(float_type("I32").has_value());
}

TEST(SafetensorsTest, HashesTheWholeFileAndTheSeed) {
  const std::string bytes = small_file().bytes();
  const TemporaryFile file(bytes);
  const TemporaryFile copy(bytes);
  std::string changed = bytes;
  changed.back() ^= 1;
  const TemporaryFile other(changed);
  const std::uint64_t hash = SafetensorsFile(file.path()).content_hash(7);
  EXPECT_EQ(SafetensorsFile(copy.path()).content_hash(7), hash);
  EXPECT_NE(SafetensorsFile(copy.path()).content_hash(8), hash);
  EXPECT_NE(SafetensorsFile(other.path()).content_hash(7), hash);
}

TEST(SafetensorsTest, NamesAMissingFile) {
  EXPECT_THROW(SafetensorsFile("/nowhere/model.safetensors"), std::system_error);
}

TEST(SafetensorsTest, RefusesWhatIsNoSafetensorsFile) {
  EXPECT_THAT(error_of("short"), HasSubstr("too short"));
  EXPECT_THAT(error_of(std::string(64, '\xff')), HasSubstr("not a safetensors file"));
  EXPECT_THAT(error_of(std::string("\xff\x00\x00\x00\x00\x00\x00\x00{}", 10)),
              HasSubstr("truncated"));
  EXPECT_THAT(error_of(SafetensorsBuilder().file_of("{\"a\": ")), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of(SafetensorsBuilder().file_of("[]")), HasSubstr("not an object"));
  EXPECT_THAT(error_of(SafetensorsBuilder().file_of(std::string(100000, '['))),
              HasSubstr("nests deeper than"));
}

TEST(SafetensorsTest, NamesATensorThatIsDescribedWrongly) {
  EXPECT_THAT(error_with([](auto& json) { json = 3; }), HasSubstr("tensor 'matrix'"));
  EXPECT_THAT(error_with([](auto& json) { json.erase("shape"); }),
              HasSubstr("tensor 'matrix' has no 'shape'"));
  EXPECT_THAT(error_with([](auto& json) { json["dtype"] = "F7"; }),
              HasSubstr("tensor 'matrix' has the unknown dtype F7"));
  EXPECT_THAT(error_with([](auto& json) { json["dtype"] = 7; }), HasSubstr("unknown dtype"));
  EXPECT_THAT(error_with([](auto& json) {
                json["shape"] = {2, -3};
              }),
              HasSubstr("impossible shape"));
  EXPECT_THAT(error_with([](auto& json) {
                json["shape"] = {1ull << 40, 1ull << 40};
              }),
              HasSubstr("impossible shape"));
  EXPECT_THAT(error_with([](auto& json) { json["shape"] = "wide"; }), HasSubstr("shape"));
  EXPECT_THAT(error_with([](auto& json) {
                json["shape"] = {2, 2};
              }),
              HasSubstr("needs 16 bytes, data_offsets give 24"));
  EXPECT_THAT(error_with([](auto& json) {
                json["data_offsets"] = {24, 0};
              }),
              HasSubstr("impossible data_offsets"));
  EXPECT_THAT(error_with([](auto& json) { json["data_offsets"] = 3; }),
              HasSubstr("not two numbers"));
}

TEST(SafetensorsTest, RefusesArraysThatDoNotTileTheFile) {
  EXPECT_THAT(error_with([](auto& json) {
                json["data_offsets"] = {1000, 1024};
              }),
              HasSubstr("the file is truncated"));
  EXPECT_THAT(error_with([](auto& json) {
                json["data_offsets"] = {4, 28};
              }),
              HasSubstr("there is a gap of 4 bytes before tensor 'matrix'"));
  SafetensorsBuilder overlapping = small_file();
  overlapping.header["again"] = overlapping.header["matrix"];
  EXPECT_THAT(error_of(overlapping.bytes()), HasSubstr("overlaps"));
  EXPECT_THAT(error_of(small_file().bytes() + "xy"),
              HasSubstr("2 bytes at the end belong to no tensor"));
  const std::string whole = small_file().bytes();
  EXPECT_THAT(error_of(whole.substr(0, whole.size() - 1)), HasSubstr("the file is truncated"));
}

TEST(SafetensorsTest, RefusesANameThatOccursTwice) {
  const std::string entry = R"("a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  EXPECT_THAT(error_of(SafetensorsBuilder().file_of("{" + entry + "," + entry + "}")),
              HasSubstr("'a' occurs twice"));
}

TEST(SafetensorsTest, SurvivesAnyDamage) {
  const std::string whole = small_file().bytes();
  std::mt19937 random(17);
  int refused = 0;
  for (int round = 0; round < 400; ++round) {
    std::string bytes = whole;
    for (int i = 0; i < 3; ++i) {
      bytes[random() % (whole.size() - small_file().data.size())] = static_cast<char>(random());
    }
    if (round % 4 == 0) bytes.resize(random() % bytes.size());
    const TemporaryFile file(bytes);
    try {
      const SafetensorsFile opened(file.path());
      opened.content_hash(0);
      for (const SafetensorsTensor& tensor : opened.tensors()) {
        std::vector<float> values(static_cast<std::size_t>(tensor.num_elements()));
        if (float_type(tensor.dtype)) read_floats(tensor, 0, tensor.num_elements(), values.data());
      }
    } catch (const std::runtime_error& error) {
      ++refused;
      EXPECT_THAT(error.what(), HasSubstr(file.path()));
    }
  }
  EXPECT_GT(refused, 320);
}

}  // namespace
}  // namespace batchmill
