#include "queue/batch_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "queue/line_splitter.h"

namespace batchmill {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

ParsedLine parse(std::string_view bytes) { return parse_batch_line(bytes, BatchLineLimits{}); }

ParsedLine parse(const std::string& url, const std::string& body) {
  return parse(R"({"custom_id":"c","method":"POST","url":")" + url + R"(","body":)" + body + "}");
}

// A chat or completions body with more fields: `"n": 2`.
ParsedLine chat(const std::string& fields) {
  return parse("/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}])" +
                                           (fields.empty() ? "" : "," + fields) + "}");
}
ParsedLine completion(const std::string& fields) {
  return parse("/v1/completions", R"({"prompt":"hi")" + (fields.empty() ? "" : "," + fields) + "}");
}
ParsedLine messages(const std::string& json) {
  return parse("/v1/chat/completions", R"({"messages":)" + json + "}");
}
ParsedLine prompt(const std::string& json) {
  return parse("/v1/completions", R"({"prompt":)" + json + "}");
}

std::string code(const ParsedLine& parsed) {
  EXPECT_NE(parsed.line.has_value(), parsed.error.has_value());
  return parsed.error ? parsed.error->code : "ok";
}
std::string message(const ParsedLine& parsed) { return parsed.error ? parsed.error->message : ""; }

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
    codes.push_back(is_blank_line(line.bytes) ? "blank" : code(parse(line.bytes)));
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

struct FieldCase {
  const char* field;
  std::vector<const char*> good;
  std::vector<const char*> bad;
};

TEST(BatchLineTest, ChecksEveryFieldsTypeAndRange) {
  const FieldCase cases[] = {
      {"model", {"\"m\"", "\"\""}, {"1", "true", "[]", "{}"}},
      {"max_tokens",
       {"1", "4.0", "1e3", "9223372036854775807"},
       {"0", "-1", "4.5", "\"4\"", "true", "[]", "1e30", "1e400", "9223372036854775808"}},
      {"max_completion_tokens", {"1"}, {"0", "\"4\"", "false"}},
      {"min_tokens", {"0", "7"}, {"-1", "\"1\"", "true", "0.5"}},
      {"ignore_eos", {"true", "false"}, {"0", "1", "\"true\""}},
      {"temperature",
       {"0", "2", "0.7", "2.0", "1e-400"},
       {"-0.1", "2.1", "\"1\"", "true", "1e400", "[]"}},
      {"top_p", {"0", "0.5", "1"}, {"1.5", "-0.2", "\"1\"", "true"}},
      {"top_k", {"-1", "0", "40", "40.0"}, {"-2", "\"1\"", "1.5", "true"}},
      {"min_p", {"0", "1", "0.1"}, {"-0.1", "1.1", "\"0\"", "false"}},
      {"seed",
       {"0", "-1", "7.0", "18446744073709551615", "-9223372036854775808"},
       {"18446744073709551616", "-9223372036854775809", "1.5", "\"1\"", "true", "1e400", "[]"}},
      {"stop",
       {"\"x\"", "[]", "[\"a\",\"b\"]"},
       {"\"\"", "[\"\"]", "[1]", "1", "true", "{}", "[\"a\",null]", "[[\"a\"]]"}},
      {"stop_token_ids",
       {"[]", "[0,5.0]"},
       {"5", "[-1]", "[\"5\"]", "[true]", "[4294967296]", "[1.5]", "{}"}},
      {"presence_penalty", {"-2", "2", "0.5"}, {"-2.1", "2.1", "\"0\"", "true"}},
      {"frequency_penalty", {"-2", "2", "0.5"}, {"-2.1", "2.1", "\"0\"", "true"}},
      {"repetition_penalty", {"1", "0.5", "1.3"}, {"0", "-1", "\"1\"", "true", "1e400"}},
      {"logit_bias",
       {"{}", "{\"5\":-100,\"17\":100}", "{\"5\":0.5}"},
       {"[1,2]", "{\"word\":3}", "{\"5\":101}", "{\"5\":-101}", "{\"5\":\"1\"}", "{\"-5\":1}",
        "{\"5x\":1}", "{\"\":1}", "{\"5\":true}", "{\"5\":null}", "{\"99999999999\":1}", "1",
        "{\"5\":1e400}"}},
      {"n", {"1", "128", "2.0"}, {"0", "-1", "129", "\"2\"", "true", "1.5"}},
      {"return_token_ids", {"true", "false"}, {"1", "\"x\""}},
      {"stream", {"false"}, {"0", "\"x\""}},
      {"best_of", {"1"}, {"0", "\"2\"", "true"}},
      {"response_format",
       {"{\"type\":\"text\"}"},
       {"{}", "\"text\"", "{\"type\":\"xml\"}", "{\"type\":1}"}},
  };
  for (const FieldCase& one : cases) {
    for (const auto make : {chat, completion}) {
      const std::string name = std::string("\"") + one.field + "\":";
      EXPECT_EQ(code(make(name + "null")), "ok") << one.field;
      for (const char* const value : one.good)
        EXPECT_EQ(code(make(name + value)), "ok") << name << value << message(make(name + value));
      for (const char* const value : one.bad) {
        const ParsedLine parsed = make(name + value);
        EXPECT_EQ(code(parsed), "invalid_value") << name << value;
        EXPECT_THAT(message(parsed), HasSubstr(std::string("body.") + one.field));
        EXPECT_EQ(parsed.custom_id, "c");
      }
    }
  }
}

TEST(BatchLineTest, ChecksFieldsOfChatsOnly) {
  const FieldCase cases[] = {
      {"logprobs", {"true", "false"}, {"1", "0", "\"true\""}},
      {"tools",
       {"[]", "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]",
        "[{\"function\":{\"name\":\"f\"}}]"},
       {"{}", "[1]", "\"x\"", "[{\"type\":\"function\",\"function\":1}]",
        "[{\"type\":1,\"function\":{\"name\":\"f\"}}]", "[{\"function\":{\"name\":1}}]",
        "[{\"function\":{\"name\":\"f\",\"parameters\":{\"minimum\":-1e400}}}]"}},
      {"chat_template_kwargs", {"{}", "{\"a\":1}"}, {"[]", "1", "\"x\"", "{\"a\":1e999}"}},
      {"add_generation_prompt", {"true", "false"}, {"1", "\"x\""}},
      {"continue_final_message", {"true", "false"}, {"1", "\"x\""}},
      {"tool_choice", {"\"none\"", "\"auto\""}, {"\"always\"", "1", "true"}},
      {"documents", {"[]", "[{\"text\":\"x\"}]"}, {"{}", "[1]", "\"x\""}},
      {"reasoning_effort", {"\"low\""}, {"1"}},
  };
  for (const FieldCase& one : cases) {
    const std::string name = std::string("\"") + one.field + "\":";
    EXPECT_EQ(code(chat(name + "null")), "ok") << one.field;
    for (const char* const value : one.good)
      EXPECT_EQ(code(chat(name + value)), "ok") << name << value << message(chat(name + value));
    for (const char* const value : one.bad)
      EXPECT_EQ(code(chat(name + value)), "invalid_value") << name << value;
  }
  EXPECT_EQ(code(chat("\"logprobs\":true,\"top_logprobs\":20")), "ok");
  EXPECT_EQ(code(chat("\"top_logprobs\":0")), "ok");
  for (const char* const bad : {"21", "-1", "\"1\"", "true", "1.5"}) {
    EXPECT_EQ(code(chat(std::string("\"logprobs\":true,\"top_logprobs\":") + bad)), "invalid_value")
        << bad;
  }
  EXPECT_EQ(code(chat("\"top_logprobs\":1")), "invalid_value");
  EXPECT_EQ(code(chat("\"logprobs\":false,\"top_logprobs\":1")), "invalid_value");
}

TEST(BatchLineTest, ChecksFieldsOfCompletionsOnly) {
  const FieldCase cases[] = {
      {"logprobs", {"0", "5", "20", "5.0"}, {"true", "false", "-1", "21", "\"1\""}},
      {"echo", {"true", "false"}, {"1", "\"x\""}},
  };
  for (const FieldCase& one : cases) {
    const std::string name = std::string("\"") + one.field + "\":";
    EXPECT_EQ(code(completion(name + "null")), "ok") << one.field;
    for (const char* const value : one.good)
      EXPECT_EQ(code(completion(name + value)), "ok") << name << value;
    for (const char* const value : one.bad)
      EXPECT_EQ(code(completion(name + value)), "invalid_value") << name << value;
  }
  EXPECT_EQ(code(completion("\"echo\":true,\"max_tokens\":0")), "ok");
  EXPECT_EQ(code(completion("\"echo\":false,\"max_tokens\":0")), "invalid_value");
  EXPECT_EQ(code(completion("\"echo\":true,\"max_tokens\":-1")), "invalid_value");
}

TEST(BatchLineTest, RefusesWhatIsNotBuiltByName) {
  const char* const refused[] = {R"("stream":true)",
                                 R"("response_format":{"type":"json_object"})",
                                 R"("response_format":{"type":"json_schema","json_schema":{}})",
                                 R"("best_of":2)",
                                 R"("use_beam_search":true)",
                                 R"("guided_json":{"type":"object"})",
                                 R"("guided_choice":["a"])",
                                 R"("structured_outputs":{"regex":"a"})",
                                 R"("lora_request":{"a":1})",
                                 R"("bad_words":["x"])",
                                 R"("length_penalty":2)",
                                 R"("skip_special_tokens":false)",
                                 R"("truncate_prompt_tokens":5)",
                                 R"("prompt_logprobs":1)",
                                 R"("stream_options":{"include_usage":true})"};
  for (const char* const field : refused) {
    for (const auto make : {chat, completion}) {
      const ParsedLine parsed = make(field);
      EXPECT_EQ(code(parsed), "unsupported_parameter") << field;
      const std::string name(field + 1, std::string_view(field).find('"', 1) - 1);
      EXPECT_THAT(message(parsed), HasSubstr("body." + name));
    }
  }
  for (const char* const field :
       {R"("tool_choice":"required")",
        R"("tool_choice":{"type":"function","function":{"name":"f"}})",
        R"("modalities":["text","audio"])", R"("functions":[{"name":"f"}])", R"("echo":true)",
        R"("tools":[{"type":"custom","custom":{}}])", R"("web_search_options":{"a":1})"}) {
    EXPECT_EQ(code(chat(field)), "unsupported_parameter") << field;
  }
  EXPECT_EQ(code(completion(R"("suffix":"x")")), "unsupported_parameter");
}

TEST(BatchLineTest, AcceptsWhatAsksForNothingSilently) {
  const std::string harmless =
      R"("user":"u","metadata":{"a":"b"},"store":true,"service_tier":"flex","stream":false,)"
      R"("stream_options":null,"use_beam_search":false,"best_of":1,"length_penalty":1.0,)"
      R"("skip_special_tokens":true,"guided_json":null,"bad_words":[],"priority":3)";
  for (const auto make : {chat, completion}) {
    const ParsedLine parsed = make(harmless);
    ASSERT_EQ(code(parsed), "ok") << message(parsed);
    EXPECT_TRUE(parsed.line->ignored_fields.empty());
  }
  const ParsedLine parsed =
      chat(R"("parallel_tool_calls":true,"tool_choice":"auto","modalities":["text"],"echo":false)");
  ASSERT_EQ(code(parsed), "ok") << message(parsed);
  EXPECT_TRUE(parsed.line->ignored_fields.empty());
  EXPECT_EQ(code(completion(R"("suffix":"","suffix":null)")), "ok");
}

TEST(BatchLineTest, ListsUnknownFields) {
  const ParsedLine parsed = parse(
      R"({"custom_id":"c","extra":1,"method":"POST","url":"/v1/completions","body":{"prompt":"x","foo":1,"bar":null}})");
  ASSERT_EQ(code(parsed), "ok");
  EXPECT_THAT(parsed.line->ignored_fields, ElementsAre("extra", "body.foo", "body.bar"));
  std::string many = "\"f\":1";
  for (int i = 0; i < 1000; ++i) many += ",\"" + std::string(200, 'f') + std::to_string(i) + "\":1";
  EXPECT_LE(chat(many).line->ignored_fields.size(), 32u);
}

TEST(BatchLineTest, ReadsValues) {
  const ParsedLine parsed = chat(
      R"("model":"m","max_tokens":5,"max_completion_tokens":6,"min_tokens":2,"temperature":0,"top_k":-1,)"
      R"("seed":-1,"stop":"x","stop_token_ids":[3],"logit_bias":{"5":-100,"17":1.5},"logprobs":true,"n":2)");
  ASSERT_EQ(code(parsed), "ok") << message(parsed);
  const BatchBody& body = parsed.line->body;
  EXPECT_EQ(body.model, "m");
  EXPECT_EQ(body.max_tokens, 6);
  EXPECT_EQ(body.min_tokens, 2);
  EXPECT_EQ(body.temperature, 0.0);
  EXPECT_EQ(body.top_k, 0);
  EXPECT_EQ(body.top_p, std::nullopt);
  EXPECT_EQ(body.seed, UINT64_MAX);
  EXPECT_THAT(body.stop, ElementsAre("x"));
  EXPECT_THAT(body.stop_token_ids, ElementsAre(3));
  EXPECT_THAT(body.logit_bias, ElementsAre(Pair(5, -100.0), Pair(17, 1.5)));
  EXPECT_EQ(body.logprobs, 0);
  EXPECT_EQ(body.n, 2);
  EXPECT_EQ(chat("").line->body.model, "default");
  EXPECT_EQ(chat("\"model\":null").line->body.model, "default");
  EXPECT_GT(*chat("\"top_p\":0").line->body.top_p, 0.0);
  EXPECT_EQ(chat("\"min_tokens\":6,\"max_tokens\":6").line->body.min_tokens, 6);
  EXPECT_EQ(code(chat("\"min_tokens\":7,\"max_tokens\":6")), "invalid_value");
}

TEST(BatchLineTest, GivesTheTemplateItsVariables) {
  const ParsedLine parsed =
      chat(R"("chat_template_kwargs":{"x":1},"reasoning_effort":"low","documents":[{"a":1}])");
  ASSERT_EQ(code(parsed), "ok");
  EXPECT_EQ(parsed.line->body.chat_template_kwargs.dump(),
            R"({"x":1,"documents":[{"a":1}],"reasoning_effort":"low"})");
  EXPECT_TRUE(chat("").line->body.chat_template_kwargs.is_null());
  EXPECT_TRUE(chat("\"tools\":[]").line->body.tools.is_null());
  EXPECT_TRUE(chat("").line->body.add_generation_prompt);
  const ParsedLine goes_on = chat("\"continue_final_message\":true");
  EXPECT_TRUE(goes_on.line->body.continue_final_message);
  EXPECT_FALSE(goes_on.line->body.add_generation_prompt);
  EXPECT_EQ(code(chat("\"continue_final_message\":true,\"add_generation_prompt\":true")),
            "invalid_value");
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

TEST(BatchLineTest, LimitsChoicesOverAllPrompts) {
  EXPECT_EQ(code(parse("/v1/completions", R"({"prompt":["a","b"],"n":64})")), "ok");
  EXPECT_EQ(code(parse("/v1/completions", R"({"prompt":["a","b"],"n":65})")), "invalid_value");
}

TEST(BatchLineTest, ReadsEmbeddings) {
  const ParsedLine parsed =
      parse("/v1/embeddings", R"({"model":"m","input":["a","b"],"encoding_format":"float"})");
  ASSERT_EQ(code(parsed), "ok") << message(parsed);
  EXPECT_EQ(parsed.line->endpoint, Endpoint::kEmbeddings);
  EXPECT_EQ(parsed.line->body.prompts.size(), 2u);
  EXPECT_EQ(code(parse("/v1/embeddings", "{}")), "missing_field");
  EXPECT_EQ(code(parse("/v1/embeddings", R"({"input":3})")), "invalid_value");
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

TEST(BatchLineTest, KnowsBlankLines) {
  EXPECT_TRUE(is_blank_line(""));
  EXPECT_TRUE(is_blank_line(" \t\r\v\f"));
  EXPECT_FALSE(is_blank_line(" 0"));
}

}  // namespace
}  // namespace batchmill
