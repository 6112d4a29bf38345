#include "tools/result_format.h"

#include <gtest/gtest.h>

namespace batchmill {
namespace {

constexpr const char* kChat =
    R"({"id":"batch_req_1","custom_id":"a,1","response":{"status_code":200,"request_id":"req_1",)"
    R"("body":{"object":"chat.completion","choices":[)"
    R"({"index":0,"message":{"content":"say \"hi\"\nnow"},"finish_reason":"stop"},)"
    R"({"index":1,"message":{"content":"b"},"finish_reason":"length"}],)"
    R"("usage":{"prompt_tokens":7,"completion_tokens":3}}},"error":null})";
constexpr const char* kText =
    R"({"custom_id":"t","response":{"body":{"choices":[{"text":"plain","finish_reason":"stop"}],)"
    R"("usage":{"prompt_tokens":1,"completion_tokens":1}}},"error":null})";
constexpr const char* kFailure =
    R"({"custom_id":null,"response":null,"error":{"code":"invalid_value","message":"no","line":2}})";

TEST(ResultFormatTest, JsonLinesStayAsTheyAre) {
  EXPECT_EQ(result_header(ResultFormat::kJsonl), "");
  EXPECT_EQ(format_result(ResultFormat::kJsonl, kFailure), std::string(kFailure) + "\n");
}

TEST(ResultFormatTest, TextIsEveryChoiceAndNoFailure) {
  EXPECT_EQ(format_result(ResultFormat::kText, kChat), "say \"hi\"\nnow\nb\n");
  EXPECT_EQ(format_result(ResultFormat::kText, kText), "plain\n");
  EXPECT_EQ(format_result(ResultFormat::kText, kFailure), "");
}

TEST(ResultFormatTest, AVectorIsShownAsJson) {
  constexpr const char* kVectors =
      R"({"custom_id":"e","response":{"body":{"object":"list","data":[)"
      R"({"object":"embedding","index":0,"embedding":[0.5,-1.0]},)"
      R"({"object":"embedding","index":1,"embedding":"AAAAPw=="}],)"
      R"("usage":{"prompt_tokens":5,"total_tokens":5}}},"error":null})";
  EXPECT_EQ(format_result(ResultFormat::kText, kVectors), "[0.5,-1.0]\nAAAAPw==\n");
  EXPECT_EQ(format_result(ResultFormat::kCsv, kVectors),
            "e,completed,\"[0.5,-1.0]\",,5,0,\ne,completed,AAAAPw==,,,,\n");
}

TEST(ResultFormatTest, CsvCountsTheTokensOfALineOnce) {
  EXPECT_EQ(result_header(ResultFormat::kCsv),
            "custom_id,status,text,finish_reason,prompt_tokens,completion_tokens,error\n");
  EXPECT_EQ(format_result(ResultFormat::kCsv, kChat),
            "\"a,1\",completed,\"say \"\"hi\"\"\nnow\",stop,7,3,\n"
            "\"a,1\",completed,b,length,,,\n");
  EXPECT_EQ(format_result(ResultFormat::kCsv, kFailure), ",failed,,,,,invalid_value: no\n");
}

}  // namespace
}  // namespace batchmill
