#include "storage/keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace batchmill {
namespace {

JobId random_id(std::mt19937_64& random) {
  JobId id;
  for (std::uint8_t& byte : id.bytes) byte = static_cast<std::uint8_t>(random());
  return id;
}

TEST(JobIdTest, TextReadsBackAndSortsLikeTheId) {
  std::mt19937_64 random(1);
  std::vector<JobId> ids;
  for (int i = 0; i < 1'000; ++i) ids.push_back(random_id(random));
  ids.push_back({});
  JobId highest;
  highest.bytes.fill(0xff);
  ids.push_back(highest);
  std::ranges::sort(ids);
  std::string last;
  for (const JobId& id : ids) {
    const std::string text = id.to_string();
    EXPECT_EQ(text.size(), 6u + 26u);
    EXPECT_EQ(JobId::parse(text), id);
    EXPECT_LT(last, text);
    last = text;
  }
  EXPECT_EQ(JobId{}.to_string(), "batch_00000000000000000000000000");
  EXPECT_EQ(highest.to_string(), "batch_7zzzzzzzzzzzzzzzzzzzzzzzzz");
}

TEST(JobIdTest, RefusesWhatIsNoId) {
  for (const char* text :
       {"", "batch_", "batch_0000000000000000000000000", "batch_000000000000000000000000000",
        "batch_80000000000000000000000000", "batch_0000000000000000000000000u",
        "Batch_00000000000000000000000000", "batch_0000000000000000000000000-"}) {
    EXPECT_EQ(JobId::parse(text), std::nullopt) << text;
  }
  EXPECT_EQ(JobId::parse("batch_7ZZZZZZZZZZZZZZZZZZZZZZZZZ"),
            JobId::parse("batch_7zzzzzzzzzzzzzzzzzzzzzzzzz"));
}

TEST(KeysTest, LineKeysSortByJobThenLine) {
  std::mt19937_64 random(2);
  std::vector<LineKey> lines;
  for (int i = 0; i < 500; ++i) {
    JobId id;
    id.bytes[15] = static_cast<std::uint8_t>(random() % 3);
    lines.push_back({id, random() >> (random() % 64)});
  }
  for (const LineKey& a : lines) {
    EXPECT_EQ(keys::parse_line_key(keys::line_key(a)), a);
    const LineKey& b = lines[random() % lines.size()];
    EXPECT_EQ(a < b, keys::line_key(a) < keys::line_key(b));
  }
  EXPECT_EQ(keys::parse_line_key("short"), std::nullopt);
}

TEST(KeysTest, BehindIsTheFirstKeyBehindAPrefix) {
  EXPECT_EQ(keys::behind("ab"), "ac");
  EXPECT_EQ(keys::behind(std::string("a\xff")), "b");
  EXPECT_EQ(keys::behind(std::string("\xff\xff")), "");
}

TEST(KeysTest, LedgerKeysReadBack) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 200; ++i) {
    keys::LedgerKey key{random_id(random), static_cast<std::uint32_t>(random()),
                        std::string(random() % 5, 'm'), std::string(random() % 4, 'c'),
                        std::string(random() % 3, '\0')};
    const std::string bytes = keys::ledger_key(key);
    EXPECT_EQ(keys::parse_ledger_key(bytes), key);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_EQ(keys::parse_ledger_key(bytes.substr(0, size)), std::nullopt);
    }
    EXPECT_EQ(keys::parse_ledger_key(bytes + "x"), std::nullopt);
  }
}

}  // namespace
}  // namespace batchmill
