#include "queue/open_request.h"

#include <gtest/gtest.h>

namespace batchmill {
namespace {

// What is wrong with the message; empty if nothing is.
std::string fault(const Json& header) {
  std::string why;
  return read_open_request(header, &why) ? "" : why;
}

TEST(OpenRequestTest, ReadsEveryField) {
  const Json header = {{"op", "open"},
                       {"key", "k"},
                       {"name", "nightly"},
                       {"priority", -3},
                       {"strict", true},
                       {"deadline_s", 60},
                       {"metadata", {{"team", "search"}}},
                       {"content_hash", "c0ffee"},
                       {"model_fingerprint", "00000000000000aa"}};
  std::string why;
  const std::optional<OpenRequest> request = read_open_request(header, &why);
  ASSERT_TRUE(request) << why;
  EXPECT_EQ(request->key, "k");
  EXPECT_EQ(request->name, "nightly");
  EXPECT_EQ(request->priority, -3);
  EXPECT_TRUE(request->strict);
  EXPECT_EQ(request->deadline_s, 60);
  EXPECT_EQ(request->metadata.at("team"), "search");
  EXPECT_EQ(request->content_hash, "c0ffee");
  EXPECT_EQ(request->model_fingerprint, "00000000000000aa");
}

TEST(OpenRequestTest, NamesTheFieldThatIsWrong) {
  EXPECT_NE(fault(Json::object()).find("key"), std::string::npos);
  EXPECT_NE(fault({{"key", ""}}).find("key"), std::string::npos);
  EXPECT_NE(fault({{"key", "k"}, {"priority", 11}}).find("priority"), std::string::npos);
  EXPECT_NE(fault({{"key", "k"}, {"priority", "0"}}).find("priority"), std::string::npos);
  EXPECT_NE(fault({{"key", "k"}, {"strict", 1}}).find("strict"), std::string::npos);
  EXPECT_NE(fault({{"key", "k"}, {"deadline_s", -1}}).find("deadline_s"), std::string::npos);
  EXPECT_NE(fault({{"key", "k"}, {"deadline_s", 18446744073709551615u}}).find("deadline_s"),
            std::string::npos);
  EXPECT_NE(fault({{"key", "k"}, {"name", std::string(5'000, 'x')}}).find("name"),
            std::string::npos);
  EXPECT_NE(fault({{"key", "k"}, {"metadata", {{"a", 1}}}}).find("metadata"), std::string::npos);
}

}  // namespace
}  // namespace batchmill
