#include "queue/body_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/queue/batch_lines.h"

namespace batchmill {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

struct FieldCase {
  const char* field;
  std::vector<const char*> good;
  std::vector<const char*> bad;
};

TEST(BodyFieldsTest, ChecksEveryFieldsTypeAndRange) {
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

TEST(BodyFieldsTest, ChecksFieldsOfChatsOnly) {
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
      {"truncation", {"\"auto\"", "\"disabled\""}, {"\"last\"", "true", "1", "{}", "\"\""}},
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

TEST(BodyFieldsTest, ChecksFieldsOfCompletionsOnly) {
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

TEST(BodyFieldsTest, RefusesWhatIsNotBuiltByName) {
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
  EXPECT_EQ(code(completion(R"("truncation":"auto")")), "unsupported_parameter");
  EXPECT_EQ(code(completion(R"("truncation":"disabled")")), "ok");
}

TEST(BodyFieldsTest, AcceptsWhatAsksForNothingSilently) {
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

TEST(BodyFieldsTest, ListsUnknownFields) {
  const ParsedLine parsed = parse(
      R"({"custom_id":"c","extra":1,"method":"POST","url":"/v1/completions","body":{"prompt":"x","foo":1,"bar":null}})");
  ASSERT_EQ(code(parsed), "ok");
  EXPECT_THAT(parsed.line->ignored_fields, ElementsAre("extra", "body.foo", "body.bar"));
  std::string many = "\"f\":1";
  for (int i = 0; i < 1000; ++i) many += ",\"" + std::string(200, 'f') + std::to_string(i) + "\":1";
  EXPECT_LE(chat(many).line->ignored_fields.size(), 32u);
}

TEST(BodyFieldsTest, ReadsValues) {
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

TEST(BodyFieldsTest, GivesTheTemplateItsVariables) {
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

TEST(BodyFieldsTest, LimitsChoicesOverAllPrompts) {
  EXPECT_EQ(code(parse("/v1/completions", R"({"prompt":["a","b"],"n":64})")), "ok");
  EXPECT_EQ(code(parse("/v1/completions", R"({"prompt":["a","b"],"n":65})")), "invalid_value");
}

}  // namespace
}  // namespace batchmill
