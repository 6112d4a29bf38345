#include "queue/input_stream.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "queue/content_hash.h"

namespace batchmill {
namespace {

std::string gzip(const std::string& content) {
  z_stream stream = {};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string packed(deflateBound(&stream, content.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

std::string zstd(const std::string& content) {
  std::string packed(ZSTD_compressBound(content.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), content.data(), content.size(), 3));
  return packed;
}

const std::string kSkippable = std::string("\x50\x2a\x4d\x18\x03\x00\x00\x00", 8) + "abc";

class InputStreamTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ("input_stream_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& bytes) {
    const std::string path = folder_ / "input.bin";
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  static std::string read_all(InputStream& input, std::size_t step = 4096) {
    std::string content;
    std::vector<char> buffer(step);
    while (const std::size_t size = input.read_at(content.size(), buffer.data(), step)) {
      content.append(buffer.data(), size);
    }
    return content;
  }

  std::string content_of(const std::string& bytes) {
    return read_all(*InputStream::open(write(bytes)));
  }

  // The code of the error that reading `bytes` ends with, "" if it ends without one.
  std::string error_of(const std::string& bytes) {
    try {
      content_of(bytes);
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find("input.bin"), std::string::npos);
      return error.code();
    }
    return "";
  }

  static std::string sample(std::size_t size) {
    std::mt19937 random(3);
    std::string content;
    while (content.size() < size) content += "{\"n\": " + std::to_string(random()) + "}\n";
    return content;
  }

  std::filesystem::path folder_;
};

TEST_F(InputStreamTest, ReadsPlainAndPackedFilesAlike) {
  for (const std::size_t size : {1u, 5000u, 3'000'000u}) {
    const std::string content = sample(size);
    EXPECT_EQ(content_of(content), content);
    EXPECT_EQ(content_of(gzip(content)), content);
    EXPECT_EQ(content_of(zstd(content)), content);
  }
  EXPECT_EQ(content_of(""), "");
  EXPECT_EQ(content_of(gzip("")), "");
  EXPECT_EQ(content_of(zstd("")), "");
}

TEST_F(InputStreamTest, ReadsJoinedArchives) {
  const std::string a = sample(1000), b = sample(400'000);
  EXPECT_EQ(content_of(gzip(a) + gzip("") + gzip(b)), a + b);
  EXPECT_EQ(content_of(gzip(a) + std::string(512, '\0')), a);
  EXPECT_EQ(content_of(zstd(a) + zstd("") + kSkippable + zstd(b) + kSkippable), a + b);
  EXPECT_EQ(content_of(kSkippable + zstd(a)), a);
}

TEST_F(InputStreamTest, StepsBack) {
  const std::string content = sample(700'000);
  for (const std::string& bytes : {content, gzip(content), zstd(content)}) {
    const auto input = InputStream::open(write(bytes));
    std::mt19937 random(5);
    for (int round = 0; round < 40; ++round) {
      const std::size_t offset = random() % (content.size() + 10);
      char buffer[1000];
      const std::size_t size = input->read_at(offset, buffer, sizeof buffer);
      if (offset >= content.size()) {
        EXPECT_EQ(size, 0u);
      } else {
        ASSERT_GT(size, 0u);
        EXPECT_EQ(std::string_view(buffer, size), std::string_view(content).substr(offset, size));
      }
    }
  }
}

TEST_F(InputStreamTest, TellsAnArchiveThatIsCutAtAnyByte) {
  const std::string content = sample(300);
  const std::string tail = sample(60);
  for (const auto pack : {gzip, zstd}) {
    const std::string first = pack(content), whole = first + pack(tail);
    const std::size_t magic = pack == gzip ? 2 : 4;
    for (std::size_t size = magic; size < whole.size(); ++size) {
      if (size == first.size()) continue;  // exactly one archive
      EXPECT_EQ(error_of(whole.substr(0, size)), "truncated_input") << size;
    }
  }
}

TEST_F(InputStreamTest, TellsDamageAndOtherBytesBehindAnArchive) {
  const std::string content = sample(2000);
  EXPECT_EQ(error_of(gzip(content) + "garbage"), "unreadable_input");
  EXPECT_EQ(error_of(gzip(content) + std::string(3, '\0') + gzip(content)), "unreadable_input");
  EXPECT_EQ(error_of(zstd(content) + "garbage"), "unreadable_input");
  std::string broken = gzip(content);
  broken[broken.size() - 6] = static_cast<char>(broken[broken.size() - 6] ^ 1);  // its checksum
  EXPECT_EQ(error_of(broken), "unreadable_input");
  EXPECT_EQ(error_of(std::string("\xfd"
                                 "7zXZ\0\0\0",
                                 8)),
            "unreadable_input");
}

TEST_F(InputStreamTest, TellsAFileThatGotShorterWhileItWasRead) {
  const std::string content(10'000, 'x');
  for (const bool packed : {false, true}) {
    const std::string path = write(packed ? gzip(content) : content);
    const auto input = InputStream::open(path);
    std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
    std::string buffer(20'000, '\0');
    try {
      std::uint64_t offset = 0;
      while (const std::size_t got = input->read_at(offset, buffer.data(), buffer.size())) {
        offset += got;
      }
      ADD_FAILURE() << "taken as whole";
    } catch (const InputError& error) {
      EXPECT_EQ(error.code(), "truncated_input");
      EXPECT_NE(std::string(error.what()).find("got shorter"), std::string::npos) << error.what();
    }
  }
}

TEST_F(InputStreamTest, NamesAFileThatCannotBeRead) {
  for (const std::string& path : {(folder_ / "none").string(), folder_.string()}) {
    try {
      const auto input = InputStream::open(path);
      FAIL() << path;
    } catch (const InputError& error) {
      EXPECT_EQ(error.code(), "unreadable_input");
      EXPECT_NE(std::string(error.what()).find(path), std::string::npos);
    }
  }
}

TEST_F(InputStreamTest, ReadsAPipeAgain) {
  const std::string content = sample(900'000);
  const std::string path = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  std::jthread writer([&] { std::ofstream(path, std::ios::binary) << gzip(content); });
  const auto input = InputStream::open(path);
  EXPECT_EQ(read_all(*input, 100'000), content);
  EXPECT_EQ(read_all(*input, 777), content);
}

TEST_F(InputStreamTest, HashesContentNotItsPacking) {
  const std::string content = sample(2'500'000);
  ContentHasher hasher;
  hasher.update(content.substr(0, 77));
  hasher.update(content.substr(77));
  const std::string expected = hasher.hex();
  EXPECT_EQ(content_hash(*InputStream::open(write(content))), expected);
  EXPECT_EQ(content_hash(*InputStream::open(write(zstd(content)))), expected);
  EXPECT_EQ(ContentHasher().hex(), "99aa06d3014798d86001c324468d497f");  // xxhsum -H2 of nothing
}

}  // namespace
}  // namespace batchmill
