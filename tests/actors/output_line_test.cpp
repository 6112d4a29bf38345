#include "actors/output_line.h"

#include <gtest/gtest.h>

#include <limits>

namespace batchmill {
namespace {

const LineKey kKey{JobId{{0x01, 0xAB}}, 7};

LineWork chat_work() {
  LineWork work;
  work.custom_id = "a";
  work.requested_model = "default";
  return work;
}

RequestOutput output_with(std::vector<std::string> texts) {
  RequestOutput output;
  output.num_prompt_tokens = 10;
  output.num_cached_tokens = 4;
  for (std::string& text : texts) {
    Choice choice;
    choice.text = std::move(text);
    choice.finish_reason = FinishReason::kStop;
    choice.token_ids = {3, 4};
    output.num_completion_tokens += 2;
    output.choices.push_back(std::move(choice));
  }
  return output;
}

Json rendered(const LineWork& work, const std::vector<RequestOutput>& outputs,
              const std::vector<std::vector<TokenId>>& prompts) {
  Success success;
  success.key = kKey;
  success.work = &work;
  success.prompts = &prompts;
  success.outputs = &outputs;
  success.fingerprint = "0123456789abcdef";
  success.created_s = 1'700'000'000;
  return Json::parse(success_output(success));
}

TEST(OutputLineTest, WritesAChatCompletion) {
  const LineWork work = chat_work();
  const Json line = rendered(work, {output_with({"hi", "ho"})}, {{1, 2}});
  EXPECT_EQ(line["id"], batch_request_id(kKey));
  EXPECT_EQ(line["custom_id"], "a");
  EXPECT_TRUE(line["error"].is_null());
  EXPECT_EQ(line["response"]["status_code"], 200);
  const Json& body = line["response"]["body"];
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["choices"][1]["index"], 1);
  EXPECT_EQ(body["choices"][1]["message"]["content"], "ho");
  EXPECT_EQ(body["choices"][1]["finish_reason"], "stop");
  EXPECT_TRUE(body["choices"][0]["logprobs"].is_null());
  EXPECT_EQ(body["usage"]["prompt_tokens"], 10);
  EXPECT_EQ(body["usage"]["completion_tokens"], 4);
  EXPECT_EQ(body["usage"]["total_tokens"], 14);
  EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 4);
  EXPECT_FALSE(body.contains("prompt_token_ids"));
}

TEST(OutputLineTest, NumbersTheChoicesOfSeveralPromptsThrough) {
  LineWork work = chat_work();
  work.endpoint = Endpoint::kCompletions;
  work.return_token_ids = true;
  const Json line =
      rendered(work, {output_with({"a", "b"}), output_with({"c", "d"})}, {{1, 2}, {3}});
  const Json& body = line["response"]["body"];
  ASSERT_EQ(body["choices"].size(), 4u);
  EXPECT_EQ(body["choices"][2]["index"], 2);
  EXPECT_EQ(body["choices"][2]["text"], "c");
  EXPECT_EQ(body["choices"][3]["token_ids"], Json({3, 4}));
  EXPECT_EQ(body["prompt_token_ids"], Json({{1, 2}, {3}}));
  EXPECT_EQ(body["usage"]["prompt_tokens"], 20);
}

TEST(OutputLineTest, PutsTheEchoBeforeTheText) {
  LineWork work = chat_work();
  work.endpoint = Endpoint::kCompletions;
  work.echo = true;
  work.echo_texts = {"Once "};
  const Json line = rendered(work, {output_with({"upon"})}, {{1, 2}});
  EXPECT_EQ(line["response"]["body"]["choices"][0]["text"], "Once upon");
}

TEST(OutputLineTest, WritesInfiniteLogProbabilitiesAsOpenAiDoes) {
  LineWork work = chat_work();
  work.params.logprobs = 1;
  std::vector<RequestOutput> outputs = {output_with({"x"})};
  PositionLogprobs position;
  position.chosen = {5, -std::numeric_limits<float>::infinity()};
  position.top = {{6, -0.5f}};
  outputs[0].choices[0].logprobs = {position};
  const Json line = rendered(work, outputs, {{1}});
  const Json& content = line["response"]["body"]["choices"][0]["logprobs"]["content"];
  EXPECT_EQ(content[0]["logprob"], -9999.0);
  EXPECT_EQ(content[0]["top_logprobs"][0]["logprob"], -0.5);
}

TEST(OutputLineTest, WritesAFailureWithTheSameSchema) {
  const Json line = Json::parse(failure_output(kKey, std::nullopt, "invalid_json_line", "broken"));
  EXPECT_TRUE(line["custom_id"].is_null());
  EXPECT_TRUE(line["response"].is_null());
  EXPECT_EQ(line["error"]["code"], "invalid_json_line");
  EXPECT_EQ(line["error"]["line"], 7);
  EXPECT_EQ(Json::parse(failure_output(kKey, "x", "invalid_value", "m"))["custom_id"], "x");
}

TEST(OutputLineTest, CutsALongMessageBetweenCharacters) {
  const std::string long_message = "no" + std::string(998, 'x') + "é";
  const Json line = Json::parse(failure_output(kKey, "a", "template_error", long_message));
  EXPECT_EQ(line["error"]["message"], long_message.substr(0, 1000));
  const Json other = Json::parse(failure_output(kKey, "a", "template_error", "x" + long_message));
  EXPECT_EQ(other["error"]["message"], ("x" + long_message).substr(0, 1000));
}

TEST(OutputLineTest, IsAlwaysOneLineOfValidUtf8) {
  LineWork work = chat_work();
  const std::vector<RequestOutput> outputs = {output_with({"a\nb\xFF"})};
  const std::vector<std::vector<TokenId>> prompts = {{1}};
  Success success;
  success.key = kKey;
  success.work = &work;
  success.prompts = &prompts;
  success.outputs = &outputs;
  const std::string line = success_output(success);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_EQ(Json::parse(line)["response"]["body"]["choices"][0]["message"]["content"],
            "a\nb\xEF\xBF\xBD");
}

}  // namespace
}  // namespace batchmill
