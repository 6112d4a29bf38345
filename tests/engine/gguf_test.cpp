#include "engine/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <system_error>

#include "tests/engine/gguf_builder.h"
#include "tests/engine/temporary_file.h"

namespace batchmill {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using B = testing::GgufBuilder;
using testing::TemporaryFile;

// What opening a file of these bytes throws; "" if it opens.
std::string error_of(const std::string& bytes) {
  const TemporaryFile file(bytes);
  try {
    GgufFile gguf(file.path());
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr(file.path()));
    return error.what();
  }
  return "";
}

std::string read_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream content;
  content << stream.rdbuf();
  return content.str();
}

const std::string kTinyModel = BATCHMILL_TEST_DATA "/models/llama3/model-q4_0.gguf";

// Reads everything a loader would, so that a sanitizer sees what a bad file makes it touch.
std::uint64_t touch_all(const GgufFile& file) {
  std::uint64_t sum = 0;
  for (const auto key : file.keys()) {
    const GgufValue& value = *file.find(key);
    if (const auto* array = std::get_if<GgufArray>(&value.value)) {
      if (array->element_type == GgufType::kString) {
        const auto texts = file.strings(key);  // lives through the loop
        for (const auto text : *texts) sum += text.size();
      }
      for (const std::byte byte : array->bytes) sum += std::to_integer<unsigned>(byte);
    } else if (const auto* text = std::get_if<std::string_view>(&value.value)) {
      for (const char c : *text) sum += static_cast<unsigned char>(c);
    }
  }
  for (const GgufTensor& tensor : file.tensors()) {
    if (!tensor.bytes.empty()) {
      sum += std::to_integer<unsigned>(tensor.bytes.front());
      sum += std::to_integer<unsigned>(tensor.bytes.back());
    }
  }
  return sum;
}

TEST(GgufFileTest, ReadsEveryTypeOfValue) {
  B b;
  b.key("u8", GgufType::kUint8, B::number<std::uint8_t>(200));
  b.key("i8", GgufType::kInt8, B::number<std::int8_t>(-100));
  b.key("u16", GgufType::kUint16, B::number<std::uint16_t>(60000));
  b.key("i16", GgufType::kInt16, B::number<std::int16_t>(-30000));
  b.key("u32", GgufType::kUint32, B::number<std::uint32_t>(4000000000u));
  b.key("i32", GgufType::kInt32, B::number<std::int32_t>(-2000000000));
  b.key("u64", GgufType::kUint64, B::number<std::uint64_t>(1ull << 40));
  b.key("big", GgufType::kUint64, B::number<std::uint64_t>(~0ull));
  b.key("i64", GgufType::kInt64, B::number<std::int64_t>(-(1ll << 40)));
  b.key("f32", GgufType::kFloat32, B::number(0.5f));
  b.key("f64", GgufType::kFloat64, B::number(0.25));
  b.key("yes", GgufType::kBool, B::number<std::uint8_t>(1));
  b.string("text", "héllo");
  b.key("names", GgufType::kArray, B::array(GgufType::kString, 2, B::text("a") + B::text("")));
  b.key("kinds", GgufType::kArray,
        B::array(GgufType::kInt32, 2, B::number<std::int32_t>(-3) + B::number<std::int32_t>(4)));
  const TemporaryFile file(b.bytes());
  const GgufFile gguf(file.path());
  EXPECT_EQ(gguf.integer("u8"), 200);
  EXPECT_EQ(gguf.integer("i8"), -100);
  EXPECT_EQ(gguf.integer("u16"), 60000);
  EXPECT_EQ(gguf.integer("i16"), -30000);
  EXPECT_EQ(gguf.integer("u32"), 4000000000);
  EXPECT_EQ(gguf.integer("i32"), -2000000000);
  EXPECT_EQ(gguf.integer("u64"), 1ll << 40);
  EXPECT_EQ(gguf.integer("i64"), -(1ll << 40));
  EXPECT_EQ(gguf.number("f32"), 0.5);
  EXPECT_EQ(gguf.number("f64"), 0.25);
  EXPECT_EQ(gguf.number("u8"), 200.0);
  EXPECT_EQ(gguf.boolean("yes"), true);
  EXPECT_EQ(gguf.string("text"), "héllo");
  EXPECT_THAT(*gguf.strings("names"), ElementsAre("a", ""));
  EXPECT_THAT(*gguf.integers("kinds"), ElementsAre(-3, 4));
  EXPECT_EQ(gguf.integer("absent"), std::nullopt);
  EXPECT_THROW((void)gguf.integer("text"), std::runtime_error);
  EXPECT_THROW((void)gguf.integer("big"), std::runtime_error);
  EXPECT_THROW((void)gguf.strings("kinds"), std::runtime_error);
  EXPECT_THROW((void)gguf.integers("names"), std::runtime_error);
  EXPECT_THROW((void)gguf.string("u8"), std::runtime_error);
  EXPECT_THROW((void)gguf.boolean("u8"), std::runtime_error);
}

TEST(GgufFileTest, FindsTensorsWithTheirBytes) {
  B b;
  b.tensor("x", {2, 3}, 0, 0).tensor("q", {32, 2}, 2, 32).tensor("odd", {5}, 77, 64);
  b.data.assign(100, 'd');
  const TemporaryFile file(b.bytes());
  const GgufFile gguf(file.path());
  EXPECT_EQ(gguf.tensor("x").bytes.size(), 24u);
  EXPECT_EQ(gguf.tensor("x").num_rows(), 3u);
  EXPECT_EQ(gguf.tensor("q").bytes.size(), 36u);
  EXPECT_EQ(gguf.tensor("odd").bytes.size(), 36u);
  EXPECT_EQ(gguf.find_tensor("absent"), nullptr);
  EXPECT_THROW((void)gguf.tensor("absent"), std::runtime_error);
}

TEST(GgufFileTest, NamesWhatCannotBeOpened) {
  EXPECT_THROW(GgufFile("/nonexistent/model.gguf"), std::system_error);
  EXPECT_THROW(GgufFile("/"), std::system_error);
  EXPECT_THROW(GgufFile("/dev/zero"), std::system_error);
  EXPECT_THAT(error_of(""), HasSubstr("the file has 0 bytes"));
  EXPECT_THAT(error_of(std::string(100, 'x')), HasSubstr("does not begin with GGUF"));
}

TEST(GgufFileTest, RefusesHeadersThatLie) {
  B version;
  version.version = 9;
  EXPECT_THAT(error_of(version.bytes()), HasSubstr("version 9 is unknown"));
  B big_endian;
  big_endian.version = 0x03000000;
  EXPECT_THAT(error_of(big_endian.bytes()), HasSubstr("big-endian"));
  for (const std::uint64_t count : {std::uint64_t{1}, std::uint64_t{1} << 33, ~std::uint64_t{0}}) {
    B keys;
    keys.num_keys = count;
    EXPECT_THAT(error_of(keys.bytes()), HasSubstr(std::to_string(count) + " keys"));
    B tensors;
    tensors.num_tensors = count;
    EXPECT_THAT(error_of(tensors.bytes()), HasSubstr(std::to_string(count) + " tensors"));
  }
}

TEST(GgufFileTest, RefusesMetadataThatLies) {
  const auto u64 = [](std::uint64_t value) { return B::number(value); };
  EXPECT_THAT(error_of(B().key("k", GgufType::kString, u64(~0ull)).bytes()),
              AllOf(HasSubstr("metadata 'k'"), HasSubstr("needs 18446744073709551615 bytes")));
  EXPECT_THAT(error_of(B().key("k", static_cast<GgufType>(13), u64(0)).bytes()),
              HasSubstr("value type 13 is unknown"));
  EXPECT_THAT(error_of(B().key("k", GgufType::kBool, B::number<std::uint8_t>(2)).bytes()),
              HasSubstr("a bool has the value 2"));
  EXPECT_THAT(
      error_of(B().key("k", GgufType::kArray, B::array(GgufType::kUint64, ~0ull, "")).bytes()),
      HasSubstr("18446744073709551615 elements"));
  EXPECT_THAT(
      error_of(B().key("k", GgufType::kArray, B::array(GgufType::kUint64, 1ull << 61, "")).bytes()),
      HasSubstr("elements"));
  EXPECT_THAT(
      error_of(B().key("k", GgufType::kArray, B::array(GgufType::kString, 1ull << 61, "")).bytes()),
      HasSubstr("elements"));
  EXPECT_THAT(error_of(B().key("k", GgufType::kArray,
                               B::array(GgufType::kArray, 1, B::array(GgufType::kUint8, 0, "")))
                           .bytes()),
              HasSubstr("arrays of arrays"));
  EXPECT_THAT(error_of(B().uint32("k", 1).uint32("k", 2).bytes()), HasSubstr("'k'"));
  EXPECT_THAT(error_of(B().uint32("", 1).bytes()), HasSubstr("its name is empty"));
  EXPECT_THAT(error_of(B().uint32("general.alignment", 24).tensor("x", {1}, 0, 0).bytes()),
              HasSubstr("the alignment is 24"));
  EXPECT_THAT(error_of(B().uint32("general.alignment", 0).tensor("x", {1}, 0, 0).bytes()),
              HasSubstr("the alignment is 0"));
}

TEST(GgufFileTest, RefusesTensorsThatLie) {
  const auto error = [](const std::vector<std::uint64_t>& dims, std::uint32_t type,
                        std::uint64_t offset) {
    B b;
    b.tensor("x", dims, type, offset);
    b.data.assign(4096, 'd');
    return error_of(b.bytes());
  };
  EXPECT_EQ(error({1024}, 0, 0), "");
  EXPECT_THAT(error({1025}, 0, 0), AllOf(HasSubstr("tensor 'x'"), HasSubstr("needs 4100 bytes")));
  EXPECT_THAT(error({1024}, 0, 32), HasSubstr("needs 4096 bytes"));
  EXPECT_THAT(error({8}, 0, 8192), HasSubstr("beyond the end"));
  EXPECT_THAT(error({8}, 0, ~0ull - 31), HasSubstr("beyond the end"));
  EXPECT_THAT(error({8}, 0, 16), HasSubstr("not a multiple of 32"));
  EXPECT_THAT(error({1ull << 32, 1ull << 32}, 0, 0), HasSubstr("more than the file holds"));
  EXPECT_THAT(error({~0ull, 2, 2}, 0, 0), HasSubstr("more than the file holds"));
  EXPECT_THAT(error({8, 0}, 0, 0), HasSubstr("dimension 1 is 0"));
  EXPECT_THAT(error({1, 1, 1, 1, 1}, 0, 0), HasSubstr("5 dimensions"));
  EXPECT_THAT(error({33}, 2, 0), HasSubstr("Q4_0 needs a multiple of 32"));
  B twice;
  twice.tensor("x", {1}, 0, 0).tensor("x", {1}, 0, 0);
  twice.data.assign(32, 'd');
  EXPECT_THAT(error_of(twice.bytes()), HasSubstr("the name is there twice"));
}

TEST(GgufFileTest, RefusesEveryTruncation) {
  const std::string whole = read_file(kTinyModel);
  ASSERT_GT(whole.size(), 100000u);
  EXPECT_EQ(error_of(whole), "");
  const TemporaryFile file("");
  // Often through header and directory (about 9.5 kB), then in strides through the data.
  for (std::size_t size = 0; size < whole.size(); size += size < 10000 ? 13 : 9973) {
    file.write(whole.substr(0, size));
    EXPECT_THROW(GgufFile{file.path()}, std::runtime_error) << size;
  }
  EXPECT_NE(error_of(whole.substr(0, whole.size() - 1)), "");
}

TEST(GgufFileTest, SurvivesRandomDamage) {
  const std::string whole = read_file(kTinyModel);
  const TemporaryFile file("");
  std::mt19937 random(1234);
  const std::uint64_t nasty[] = {0,          1,          0x7f,       0xff,       0xffff, 0x7fffffff,
                                 0xffffffff, 1ull << 32, 1ull << 61, 1ull << 63, ~0ull,  ~0ull - 7};
  int opened = 0;
  for (int round = 0; round < 1500; ++round) {
    std::string bytes = whole;
    const int damages = 1 + static_cast<int>(random() % 3);
    for (int i = 0; i < damages; ++i) {
      // Half of them in the first kilobyte (keys) or the tensor directory.
      const std::size_t places[] = {random() % 1024, 8300 + random() % 1200, random() % 9600};
      const std::size_t at = places[random() % 3];
      if (random() % 2 == 0) {
        bytes[at] = static_cast<char>(random());
      } else {
        const std::uint64_t value = nasty[random() % std::size(nasty)];
        std::memcpy(bytes.data() + at, &value, random() % 2 == 0 ? 4 : 8);
      }
    }
    file.write(bytes);
    try {
      const GgufFile gguf(file.path());
      (void)touch_all(gguf);
      ++opened;
    } catch (const std::runtime_error& error) {
      EXPECT_THAT(error.what(), HasSubstr(file.path()));
    }
  }
  EXPECT_GT(opened, 50);
  EXPECT_LT(opened, 1450);
}

}  // namespace
}  // namespace batchmill
