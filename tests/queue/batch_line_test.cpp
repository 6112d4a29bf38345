#include "queue/batch_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <sstream>
#include <string>

#include "queue/line_splitter.h"
#include "tests/queue/batch_lines.h"

namespace batchmill {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Codes of a file's lines; "blank" for blank ones.
std::vector<std::string> codes_of_file(const std::string& name) {
  std::ifstream file(std::string(BATCHMILL_TEST_DATA) + "/jobs/" + name, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  LineSplitter splitter(1 << 20, 1, 0);
  std::vector<InputLine> lines;
  splitter.feed(bytes.str(), &lines);
  splitter.finish(&lines);
  std::vector<std::string> codes;
  for (const InputLine& line : lines) {
    const bool blank = line.bytes.find_first_not_of(" \t\r\v\f") == std::string::npos;
    codes.push_back(blank ? "blank" : code(parse(line.bytes)));
  }
  return codes;
}

TEST(BatchLineTest, JudgesTheExampleFiles) {
  EXPECT_THAT(codes_of_file("ex_all_fail.jsonl"),
              ElementsAre("invalid_value", "invalid_json_line", "unsupported_url"));
  EXPECT_THAT(codes_of_file("ex_answers.jsonl"), ElementsAre("ok", "ok", "ok", "ok"));
  EXPECT_THAT(codes_of_file("ex_envelope.jsonl"),
              ElementsAre("ok", "missing_field", "missing_field", "missing_field", "missing_field",
                          "ok", "ok", "unsupported_url", "unsupported_url", "ok",
                          "unsupported_parameter", "ok", "invalid_value"));
  EXPECT_THAT(codes_of_file("ex_lines.jsonl"),
              ElementsAre("ok", "ok", "blank", "blank", "invalid_json_line", "invalid_json_line",
                          "invalid_json_line", "invalid_json_line", "invalid_json_line", "ok"));
  EXPECT_THAT(codes_of_file("ex_messages.jsonl"),
              ElementsAre("ok", "ok", "ok", "unsupported_parameter", "unsupported_parameter",
                          "invalid_value", "missing_field"));
  // Line 7's id is outside this or that vocabulary: only the model can tell.
  EXPECT_THAT(codes_of_file("ex_values.jsonl"),
              ElementsAre("ok", "invalid_value", "invalid_value", "invalid_value", "invalid_value",
                          "invalid_value", "ok", "invalid_value", "ok"));
}

TEST(BatchLineTest, EchoesTheIdOfALineThatCouldBeRead) {
  EXPECT_EQ(parse(R"({"custom_id":"x"})").custom_id, "x");
  EXPECT_EQ(parse(R"({"custom_id":""})").custom_id, "");
  EXPECT_EQ(parse(R"({"body":3,"url":7,"custom_id":"x"})").custom_id, "x");
  EXPECT_EQ(parse(R"({"custom_id":5})").custom_id, std::nullopt);
  EXPECT_EQ(parse(R"({"custom_id":"x")").custom_id, std::nullopt);
  EXPECT_EQ(chat("\"n\":0").custom_id, "c");
}

TEST(BatchLineTest, ChecksTheEnvelope) {
  const std::string body = R"("body":{"messages":[{"role":"user","content":"hi"}]})";
  const auto line = [&](const std::string& fields) { return "{" + fields + "," + body + "}"; };
  const std::string id = R"("custom_id":"a")", method = R"("method":"POST")",
                    url = R"("url":"/v1/chat/completions")";
  EXPECT_EQ(code(parse(line(id + "," + method + "," + url))), "ok");
  EXPECT_EQ(code(parse(line(R"("custom_id":"",)" + method + "," + url))), "ok");
  EXPECT_EQ(code(parse(line(method + "," + url))), "missing_field");
  EXPECT_EQ(code(parse(line(R"("custom_id":null,)" + method + "," + url))), "missing_field");
  EXPECT_EQ(code(parse(line(R"("custom_id":1,)" + method + "," + url))), "invalid_value");
  EXPECT_EQ(code(parse(line(id + "," + url))), "missing_field");
  EXPECT_EQ(code(parse(line(id + R"(,"method":"GET",)" + url))), "invalid_value");
  EXPECT_EQ(code(parse(line(id + R"(,"method":"post",)" + url))), "invalid_value");
  EXPECT_EQ(code(parse(line(id + R"(,"method":1,)" + url))), "invalid_value");
  EXPECT_EQ(code(parse(line(id + "," + method))), "missing_field");
  EXPECT_EQ(code(parse(line(id + "," + method + R"(,"url":1)"))), "invalid_value");
  EXPECT_EQ(code(parse(line(id + "," + method + R"(,"url":"/v1/chat/completions/")"))),
            "unsupported_url");
  EXPECT_EQ(code(parse("{" + id + "," + method + "," + url + "}")), "missing_field");
  for (const char* const bad : {"[]", "\"x\"", "1", "true"}) {
    EXPECT_EQ(code(parse("/v1/chat/completions", bad)), "invalid_value") << bad;
  }
}

TEST(BatchLineTest, NamesTheFieldAndWhatWasFound) {
  EXPECT_EQ(message(chat(R"("temperature":"hot")")),
            "body.temperature must be a number in [0, 2], is \"hot\"");
  EXPECT_EQ(message(chat("\"n\":true")), "body.n must be an integer in [1, 128], is true");
  EXPECT_EQ(message(chat("\"stream\":true")),
            "body.stream is not supported with the value it has: true");
  EXPECT_EQ(message(messages("[{\"content\":\"x\"}]")), "body.messages[0].role is missing");
  const std::string found = message(chat(R"("seed":")" + std::string(1000, 'x') + "\""));
  EXPECT_THAT(found, HasSubstr("body.seed must be"));
  EXPECT_LT(found.size(), 200u);
  EXPECT_NO_THROW(Json(message(chat(R"("stop":[")" + std::string(59, 'x') + "é\",7]"))).dump());
}

TEST(BatchLineTest, ReadsMessages) {
  const ParsedLine parsed = messages(
      R"([{"role":"system","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},)"
      R"({"role":"user","content":null},{"role":"odd","content":"x","name":"n"},)"
      R"({"role":"assistant","tool_calls":[{"id":"1"}]},{"role":"tool","tool_call_id":"1","content":[]}])");
  ASSERT_EQ(code(parsed), "ok") << message(parsed);
  EXPECT_EQ(parsed.line->body.messages.dump(),
            R"([{"role":"system","content":"ab"},{"role":"user","content":""},)"
            R"({"role":"odd","content":"x","name":"n"},)"
            R"({"role":"assistant","tool_calls":[{"id":"1"}],"content":""},)"
            R"({"role":"tool","tool_call_id":"1","content":""}])");
}

TEST(BatchLineTest, RefusesBadMessages) {
  EXPECT_EQ(code(parse("/v1/chat/completions", "{}")), "missing_field");
  EXPECT_EQ(code(messages("null")), "missing_field");
  for (const char* const bad :
       {"[]", "{}", "\"hi\"", "[1]", "[null]", "[[]]", R"([{"role":1,"content":"x"}])",
        R"([{"role":"","content":"x"}])", R"([{"role":"user","content":1}])",
        R"([{"role":"user","content":true}])", R"([{"role":"user","content":{}}])",
        R"([{"role":"user","content":[1]}])",
        R"([{"role":"user","content":[{"type":"text","text":1}]}])",
        R"([{"role":"user","content":[{"type":1}]}])",
        R"([{"role":"user","content":"x","name":1}])",
        R"([{"role":"assistant","content":"x","tool_calls":{}}])",
        R"([{"role":"assistant","content":"x","tool_calls":[1]}])",
        R"([{"role":"user","content":"x","extra":[1e999]}])"}) {
    EXPECT_EQ(code(messages(bad)), "invalid_value") << bad;
  }
  for (const char* const bad : {R"([{"content":"x"}])", R"([{"role":"user"}])", R"([{}])",
                                R"([{"role":"user","content":[{"text":"x"}]}])",
                                R"([{"role":"user","content":[{"type":"text"}]}])"}) {
    EXPECT_EQ(code(messages(bad)), "missing_field") << bad;
  }
  for (const char* const type : {"image_url", "input_audio", "file", "video_url", "image"}) {
    const ParsedLine parsed =
        messages(R"([{"role":"user","content":[{"type":")" + std::string(type) + R"("}]}])");
    EXPECT_EQ(code(parsed), "unsupported_parameter") << type;
    EXPECT_THAT(message(parsed), HasSubstr(type));
    EXPECT_THAT(message(parsed), HasSubstr("messages[0].content[0]"));
  }
}

TEST(BatchLineTest, ReadsPrompts) {
  using Ids = std::vector<std::int64_t>;
  const auto prompts = [](const std::string& json) {
    const ParsedLine parsed = prompt(json);
    EXPECT_EQ(code(parsed), "ok") << json << message(parsed);
    return parsed.line->body.prompts;
  };
  EXPECT_EQ(prompts("\"a\"").size(), 1u);
  EXPECT_EQ(std::get<std::string>(prompts("[\"a\",\"b\"]")[1]), "b");
  EXPECT_EQ(std::get<Ids>(prompts("[1,2.0]")[0]), (Ids{1, 2}));
  EXPECT_EQ(std::get<Ids>(prompts("[[1],[2,3]]")[1]), (Ids{2, 3}));
  for (const char* const bad : {"\"\"", "[]", "[\"\"]", "[[]]", "[[1],[]]", "[1,\"a\"]",
                                "[\"a\",1]", "[\"a\",[1]]", "[[1],\"a\"]", "[-1]", "[1.5]",
                                "[true]", "[4294967296]", "{}", "1", "true", "[null]", "[[[1]]]"}) {
    EXPECT_EQ(code(prompt(bad)), "invalid_value") << bad;
  }
  EXPECT_EQ(code(prompt("null")), "missing_field");
  EXPECT_EQ(code(parse("/v1/completions", "{}")), "missing_field");
}

TEST(BatchLineTest, ReadsEmbeddings) {
  const ParsedLine parsed =
      parse("/v1/embeddings", R"({"model":"m","input":["a","b"],"encoding_format":"float"})");
  ASSERT_EQ(code(parsed), "ok") << message(parsed);
  EXPECT_EQ(parsed.line->endpoint, Endpoint::kEmbeddings);
  EXPECT_EQ(parsed.line->body.prompts.size(), 2u);
  EXPECT_EQ(code(parse("/v1/embeddings", "{}")), "missing_field");
  EXPECT_EQ(code(parse("/v1/embeddings", R"({"input":3})")), "invalid_value");
  EXPECT_FALSE(parsed.line->body.base64);
  const auto with = [](const std::string& fields) {
    return parse("/v1/embeddings", R"({"input":"a",)" + fields + "}");
  };
  const ParsedLine other = with(R"("encoding_format":"base64","dimensions":8,"user":"u")");
  ASSERT_EQ(code(other), "ok") << message(other);
  EXPECT_TRUE(other.line->body.base64);
  EXPECT_EQ(other.line->body.dimensions, 8);
  EXPECT_TRUE(other.line->ignored_fields.empty());
  EXPECT_EQ(code(with(R"("encoding_format":"hex")")), "invalid_value");
  EXPECT_EQ(code(with(R"("encoding_format":1)")), "invalid_value");
  EXPECT_EQ(code(with(R"("dimensions":0)")), "invalid_value");
  EXPECT_EQ(code(with(R"("dimensions":"8")")), "invalid_value");
  EXPECT_EQ(code(with(R"("normalize":true)")), "ok");
  EXPECT_EQ(code(with(R"("normalize":false)")), "unsupported_parameter");
  EXPECT_EQ(code(with(R"("truncation":"auto")")), "unsupported_parameter");
  std::string many = "[\"a\"";
  for (int i = 1; i < 2048; ++i) many += ",\"a\"";
  EXPECT_EQ(code(parse("/v1/embeddings", "{\"input\":" + many + "]}")), "ok");
  EXPECT_EQ(code(parse("/v1/embeddings", "{\"input\":" + many + ",\"a\"]}")), "invalid_value");
}

TEST(BatchLineTest, CallsInvalidJsonByItsName) {
  for (const char* const bad :
       {"{", "{\"custom_id\":\"a\xff\"}", R"({"custom_id":"\ud800"})", R"({"a":NaN})",
        R"({"a":Infinity})", R"({"custom_id":"a"} x)", "[]", "null", "3", "\"x\""}) {
    EXPECT_EQ(code(parse(bad)), "invalid_json_line") << bad;
  }
  EXPECT_EQ(code(parse("{\"a\":" + std::string(300, '[') + std::string(300, ']') + "}")),
            "invalid_json_line");
  EXPECT_EQ(code(chat("\"x\":" + std::string(200, '[') + std::string(200, ']'))), "ok");
}

// Whatever stands in a field, the outcome is a line or an error that can be written down.

TEST(BatchLineTest, SurvivesRandomValuesInEveryField) {
  const char* const values[] = {"null",
                                "true",
                                "0",
                                "-1",
                                "1e400",
                                "18446744073709551616",
                                "0.5",
                                "\"\"",
                                "\"\\u0000\"",
                                "\"x\"",
                                "[]",
                                "[[]]",
                                "[null]",
                                "[1,\"a\"]",
                                "{}",
                                "{\"type\":\"text\",\"text\":[]}",
                                "[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]",
                                "{\"\":{}}",
                                "[{\"function\":{\"name\":{}}}]",
                                "\"\xff\"",
                                "[[[[1]]]]"};
  const char* const names[] = {"messages",
                               "prompt",
                               "input",
                               "model",
                               "max_tokens",
                               "min_tokens",
                               "temperature",
                               "top_p",
                               "top_k",
                               "min_p",
                               "seed",
                               "stop",
                               "stop_token_ids",
                               "logit_bias",
                               "logprobs",
                               "top_logprobs",
                               "n",
                               "best_of",
                               "echo",
                               "tools",
                               "tool_choice",
                               "response_format",
                               "chat_template_kwargs",
                               "documents",
                               "modalities",
                               "stream",
                               "guided_json",
                               "add_generation_prompt",
                               "continue_final_message",
                               "unknown"};
  const char* const urls[] = {"/v1/chat/completions", "/v1/completions", "/v1/embeddings"};
  const std::set<std::string> codes = {"ok", "invalid_json_line", "missing_field", "invalid_value",
                                       "unsupported_parameter"};
  std::mt19937 random(29);
  std::set<std::string> seen;
  for (int round = 0; round < 60'000; ++round) {
    std::string body = R"({"messages":[{"role":"user","content":"x"}],"prompt":"x","input":"x")";
    for (std::size_t i = random() % 3; i > 0; --i) {
      body += std::string(",\"") + names[random() % std::size(names)] +
              "\":" + values[random() % std::size(values)];
    }
    const ParsedLine parsed = parse(urls[random() % std::size(urls)], body + "}");
    ASSERT_TRUE(codes.contains(code(parsed))) << body;
    ASSERT_NO_THROW(Json(message(parsed)).dump()) << body;
    ASSERT_LT(message(parsed).size(), 400u) << body;
    seen.insert(code(parsed));
  }
  EXPECT_EQ(seen.size(), codes.size());
}

TEST(BatchLineTest, TellsTheUrlOfALineWithoutReadingTheRest) {
  EXPECT_EQ(url_of_line(R"({"url":"/v1/completions"})"), "/v1/completions");
  EXPECT_EQ(url_of_line(R"( { "custom_id" : "url" , "url" :  "/v1/embeddings" , )"),
            "/v1/embeddings");
  EXPECT_EQ(url_of_line(R"({"body":{"url":"/v1/completions"},"url":"/v1/chat/completions"})"),
            "/v1/chat/completions");
  EXPECT_EQ(url_of_line(R"({"a":"\\","b":"\"","url":"/v1/completions"})"), "/v1/completions");
  EXPECT_EQ(url_of_line(R"({"a":["url","/v1/completions"]})"), "");
  EXPECT_EQ(url_of_line(R"({"url":7})"), "");
  EXPECT_EQ(url_of_line(R"({"url":"/v1/score"})"), "");
  for (const char* cut :
       {"", "{", R"({"url)", R"({"url")", R"({"url":)", R"({"url":"/v1)", R"({"a\)"}) {
    EXPECT_EQ(url_of_line(cut), "") << cut;
  }
  const std::string deep = R"({"url":"/v1/completions","body":)" + std::string(1 << 20, '[');
  EXPECT_EQ(url_of_line(deep), "/v1/completions");
}

}  // namespace
}  // namespace batchmill
