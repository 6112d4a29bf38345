#include "queue/json_reader.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

namespace batchmill {
namespace {

std::optional<Json> read(std::string_view bytes) { return read_json(bytes, nullptr); }

TEST(JsonReaderTest, ReadsEveryKindOfValue) {
  const auto value =
      read(R"( {"a": [1, -2.5e1, true, false, null, "x\n\u00e9\ud83d\ude00"], "b": {}} )");
  ASSERT_TRUE(value);
  EXPECT_EQ(value->dump(), "{\"a\":[1,-25.0,true,false,null,\"x\\né😀\"],\"b\":{}}");
}

TEST(JsonReaderTest, AgreesWithAnotherReaderOnRandomDocuments) {
  std::mt19937 random(7);
  const std::string alphabet = "{}[]\",:0123456789.eE+-truefalsn \\u\xc3\xa9";
  const std::string valid = R"({"a":[1,2.5,{"b":"c\n\u0041"},null,true],"d":-0.1e-2})";
  int accepted = 0;
  for (int round = 0; round < 200'000; ++round) {
    std::string text = valid;
    for (std::size_t i = 0, edits = 1 + random() % 3; i < edits; ++i) {
      const std::size_t at = random() % text.size();
      if (random() % 2 == 0) {
        text[at] = alphabet[random() % alphabet.size()];
      } else {
        text.erase(at, 1 + random() % 4);
      }
      if (text.empty()) text.push_back('0');
    }
    const auto mine = read(text);
    const Json other = Json::parse(text, nullptr, false);
    const bool overflow = mine && mine->dump().find("null") != std::string::npos;
    if (mine.has_value() == other.is_discarded() && !overflow) FAIL() << text;
    if (mine && !other.is_discarded()) {
      ++accepted;
      ASSERT_EQ(*mine, other) << text;
    }
  }
  EXPECT_GT(accepted, 10'000);
}

TEST(JsonReaderTest, RefusesWhatIsNotJson) {
  const char* const bad[] = {
      "",       " ",       "{",         "[1,]",     "{\"a\":1,}", "{\"a\" 1}",
      "{a:1}",  "'a'",     "NaN",       "Infinity", "-Infinity",  "+1",
      "01",     "1.",      ".5",        "1e",       "1e+",        "0x10",
      "\"\t\"", "\"\\x\"", "\"\\u12\"", "tru",      "nul",        "{} {}",
      "[1] x",  "[1 2]",   "\"abc",     "{\"a\"",   "{\"a\":",    "[1",
      "-",      "\"\\",    "\"\\u",     "\"\\u\"",  "{1:2}",      "\xef\xbb\xbf{}"};
  for (const char* const text : bad) {
    std::string why;
    EXPECT_FALSE(read_json(text, &why)) << text;
    EXPECT_NE(why.find("byte"), std::string::npos) << text;
  }
  EXPECT_FALSE(read(std::string_view("\0", 1)));
  EXPECT_FALSE(read(std::string_view("{}\0", 3)));
}

TEST(JsonReaderTest, RefusesLoneSurrogates) {
  for (const char* const text :
       {R"("\ud800")", R"("\udc00")", R"("\ud800x")", R"("\ud800\n")", R"("\ud800\ud800")",
        R"("\ud800\u0041")", R"("\udc00\ud800")", "\"\xed\xa0\x80\""}) {
    EXPECT_FALSE(read(text)) << text;
  }
}

TEST(JsonReaderTest, RefusesInvalidUtf8) {
  for (const char* const bytes :
       {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xf0\x80\x80\x80", "\xf4\x90\x80\x80",
        "\xf8\x88\x80\x80\x80", "\xe2\x82", "\xff", "\xc3"}) {
    EXPECT_FALSE(read(std::string("\"").append(bytes).append("\""))) << bytes;
    EXPECT_FALSE(read(std::string("{\"").append(bytes).append("\":1}"))) << bytes;
  }
  EXPECT_TRUE(read("\"\xf4\x8f\xbf\xbf\xed\x9f\xbf\xee\x80\x80\""));
}

TEST(JsonReaderTest, LimitsNesting) {
  const auto nested = [](int depth) {
    return std::string(static_cast<std::size_t>(depth), '[') +
           std::string(static_cast<std::size_t>(depth), ']');
  };
  EXPECT_TRUE(read(nested(kMaxJsonDepth)));
  EXPECT_FALSE(read(nested(kMaxJsonDepth + 1)));
  EXPECT_FALSE(read(nested(1'000'000)));
  EXPECT_FALSE(read(std::string(1'000'000, '[')));
}

TEST(JsonReaderTest, KeepsIntegersOf64BitsExact) {
  EXPECT_EQ(read("9007199254740993")->get<std::int64_t>(), 9007199254740993);
  EXPECT_EQ(read("-9223372036854775808")->get<std::int64_t>(), INT64_MIN);
  EXPECT_EQ(read("18446744073709551615")->get<std::uint64_t>(), UINT64_MAX);
  EXPECT_TRUE(read("18446744073709551616")->is_number_float());
  EXPECT_TRUE(read("-9223372036854775809")->is_number_float());
}

TEST(JsonReaderTest, GivesNumbersOutOfRangeTheNearestValue) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(read("1e400")->get<double>(), infinity);
  EXPECT_EQ(read("-1e400")->get<double>(), -infinity);
  EXPECT_EQ(read("1" + std::string(400, '0'))->get<double>(), infinity);
  EXPECT_EQ(read("1" + std::string(400, '0') + "e-400")->get<double>(), 1.0);
  EXPECT_EQ(read("1e-400")->get<double>(), 0.0);
  EXPECT_EQ(read("0." + std::string(400, '0') + "1")->get<double>(), 0.0);
  EXPECT_EQ(read("0e999999999999999999999")->get<double>(), 0.0);
  EXPECT_EQ(read("1e999999999999999999999")->get<double>(), infinity);
  EXPECT_EQ(read("1e9223372036854775807")->get<double>(), infinity);
  EXPECT_EQ(read("-1e9223372036854775807")->get<double>(), -infinity);
  EXPECT_EQ(read("0.001e-9223372036854775808")->get<double>(), 0.0);
  EXPECT_EQ(read("1e-999999999999999999999")->get<double>(), 0.0);
}

TEST(JsonReaderTest, TakesTheLastOfRepeatedKeysAlsoInLargeObjects) {
  EXPECT_EQ(read(R"({"a":1,"b":2,"a":3})")->dump(), R"({"a":3,"b":2})");
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i)
    text += "\"k" + std::to_string(i % 100'000) + "\":" + std::to_string(i) + ",";
  text.back() = '}';
  const auto value = read(text);
  ASSERT_TRUE(value);
  EXPECT_EQ(value->size(), 100'000u);
  EXPECT_EQ(value->begin().value(), 100'000);
  EXPECT_EQ((*value)["k3"], 100'003);
}

TEST(JsonReaderTest, CutsTextBetweenCharacters) {
  EXPECT_EQ(utf8_prefix("aé😀", 10), "aé😀");
  EXPECT_EQ(utf8_prefix("aé😀", 6), "aé");
  EXPECT_EQ(utf8_prefix("aé😀", 2), "a");
}

}  // namespace
}  // namespace batchmill
