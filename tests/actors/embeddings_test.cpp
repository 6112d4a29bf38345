// /v1/embeddings from the line to the result and its costs.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "actors/embedding_body.h"
#include "tests/actors/test_daemon.h"
#include "tests/support/scripted_encoder.h"

namespace batchmill::testing {
namespace {

using ::testing::HasSubstr;

std::string embedding_line(const std::string& custom_id, const Json& input,
                           const Json& more = Json::object()) {
  Json body = {{"model", "default"}, {"input", input}};
  body.update(more);
  return Json({{"custom_id", custom_id},
               {"method", "POST"},
               {"url", "/v1/embeddings"},
               {"body", std::move(body)}})
             .dump() +
         "\n";
}

TestDaemonOptions encoder_options() {
  TestDaemonOptions options;
  options.encoder = true;
  options.engine.max_num_batched_tokens = 64;
  return options;
}

Json by_id(const std::vector<Json>& lines, const std::string& custom_id) {
  for (const Json& line : lines) {
    if (line["custom_id"] == custom_id) return line;
  }
  ADD_FAILURE() << "no line " << custom_id;
  return {};
}

std::vector<float> floats_of(const Json& numbers) {
  std::vector<float> values;
  for (const Json& number : numbers) values.push_back(static_cast<float>(number.get<double>()));
  return values;
}

TEST(EmbeddingsTest, AnswersTextsAndTokenIds) {
  TestDaemon daemon(encoder_options());
  daemon.start();
  const std::string job = daemon.submit(
      embedding_line("ids", {5, 6, 7}) + embedding_line("many", Json::array({{5, 6, 7}, {9}})) +
      embedding_line("text", "Some words") +
      embedding_line("texts", {"Some words", "and others", "Some words"}) +
      embedding_line("base64", Json::array({5, 6, 7}), {{"encoding_format", "base64"}}));
  const Json batch = daemon.wait(job);
  EXPECT_EQ(batch["request_counts"]["completed"], 5);
  const std::vector<Json> lines = daemon.results(job);

  const Json one = by_id(lines, "ids")["response"]["body"];
  EXPECT_EQ(one["object"], "list");
  EXPECT_EQ(one["model"], "default");
  EXPECT_EQ(one["usage"], Json({{"prompt_tokens", 3}, {"total_tokens", 3}}));
  ASSERT_EQ(one["data"].size(), 1u);
  EXPECT_EQ(one["data"][0]["object"], "embedding");
  EXPECT_EQ(one["data"][0]["index"], 0);
  const std::vector<TokenId> ids = {5, 6, 7};
  const std::vector<float> expected = ScriptedEncoder::vector_of(ids, 8);
  EXPECT_EQ(floats_of(one["data"][0]["embedding"]), expected);  // to the last bit

  const Json many = by_id(lines, "many")["response"]["body"];
  ASSERT_EQ(many["data"].size(), 2u);
  EXPECT_EQ(many["data"][0]["embedding"], one["data"][0]["embedding"]);
  EXPECT_EQ(many["data"][1]["index"], 1);
  EXPECT_NE(many["data"][1]["embedding"], one["data"][0]["embedding"]);
  EXPECT_EQ(many["usage"]["prompt_tokens"], 4);

  const Json text = by_id(lines, "text")["response"]["body"];
  const Json texts = by_id(lines, "texts")["response"]["body"];
  ASSERT_EQ(texts["data"].size(), 3u);
  EXPECT_EQ(texts["data"][0]["embedding"], text["data"][0]["embedding"]);
  EXPECT_EQ(texts["data"][2]["embedding"], text["data"][0]["embedding"]);
  EXPECT_NE(texts["data"][1]["embedding"], text["data"][0]["embedding"]);
  EXPECT_GT(text["usage"]["prompt_tokens"], 1);

  EXPECT_EQ(by_id(lines, "base64")["response"]["body"]["data"][0]["embedding"],
            base64_floats(expected));
  daemon.stop();
}

TEST(EmbeddingsTest, CountsPromptTokensAndNothingElse) {
  TestDaemon daemon(encoder_options());
  daemon.start();
  std::string content;
  for (int i = 0; i < 200; ++i) {
    content += embedding_line(fmt::format("line-{}", i), fmt::format("A text, number {}", i));
  }
  const std::string job = daemon.submit(content);
  const Json batch = daemon.wait(job);
  EXPECT_EQ(batch["request_counts"]["completed"], 200);
  std::uint64_t tokens = 0;
  std::set<std::string> ids;
  for (const Json& line : daemon.results(job)) {
    ids.insert(line["custom_id"].get<std::string>());
    tokens += line["response"]["body"]["usage"]["prompt_tokens"].get<std::uint64_t>();
  }
  EXPECT_EQ(ids.size(), 200u);
  const Json ledger = daemon.costs(job, "job").at(0);
  EXPECT_EQ(ledger["tokens"]["prompt"], tokens);
  EXPECT_EQ(ledger["tokens"]["prompt_computed"], tokens);
  EXPECT_EQ(ledger["tokens"]["prompt_cached"], 0);
  EXPECT_EQ(ledger["tokens"]["completion"], 0);
  EXPECT_EQ(ledger["device_seconds"]["decode"], 0.0);
  EXPECT_EQ(batch["usage"]["output_tokens"], 0);
  daemon.stop();
}

TEST(EmbeddingsTest, FailsLinesThatTheModelCannotRun) {
  TestDaemon daemon(encoder_options());
  daemon.start();
  const std::string job = daemon.submit(
      chat_line("chat", "Hello") + embedding_line("long", std::vector<int>(129, 5)) +
      embedding_line("vocabulary", {1'000'000}) + embedding_line("size", "x", {{"dimensions", 4}}) +
      embedding_line("own_size", "x", {{"dimensions", 8}}) +
      embedding_line("format", "x", {{"encoding_format", "hex"}}) +
      embedding_line("fits", std::vector<int>(128, 5)));
  EXPECT_EQ(daemon.wait(job)["request_counts"]["completed"], 2);
  const std::vector<Json> lines = daemon.results(job);
  const auto code = [&](const char* id) { return by_id(lines, id)["error"]["code"]; };
  EXPECT_EQ(code("chat"), "unsupported_url");
  EXPECT_EQ(code("long"), "context_length_exceeded");
  EXPECT_THAT(by_id(lines, "long")["error"]["message"].get<std::string>(),
              HasSubstr("129 tokens and the model's context is 128 tokens"));
  EXPECT_EQ(code("vocabulary"), "invalid_value");
  EXPECT_EQ(code("size"), "unsupported_parameter");
  EXPECT_EQ(code("format"), "invalid_value");
  EXPECT_TRUE(by_id(lines, "own_size")["error"].is_null());
  EXPECT_TRUE(by_id(lines, "fits")["error"].is_null());
  daemon.stop();

  TestDaemon generator;
  generator.start();
  const std::string other = generator.submit(embedding_line("a", "x"));
  generator.wait(other);
  EXPECT_EQ(generator.results(other).at(0)["error"]["code"], "unsupported_url");
  generator.stop();
}

TEST(EmbeddingsTest, GoesOnWhereItStopped) {
  TestDaemonOptions options = encoder_options();
  std::string content;
  for (int i = 0; i < 3000; ++i) {
    content += embedding_line(fmt::format("line-{}", i), fmt::format("A text, number {}", i));
  }
  TestDaemon daemon(options);
  daemon.start();
  const std::string job = daemon.submit(content);
  daemon.wait_until(job, [](const Json& now) { return now["request_counts"]["completed"] > 10; });
  daemon.stop(std::chrono::milliseconds(0));
  daemon.start();
  EXPECT_EQ(daemon.wait(job)["request_counts"]["completed"], 3000);
  std::set<std::string> ids;
  for (const Json& line : daemon.results(job)) ids.insert(line["custom_id"].get<std::string>());
  EXPECT_EQ(ids.size(), 3000u);
  daemon.stop();
}

TEST(EmbeddingBodyTest, WritesBase64AsOthersReadIt) {
  const std::vector<float> values = {1.0f, -2.5f, 0.1f};
  EXPECT_EQ(base64_floats(values), "AACAPwAAIMDNzMw9");
  EXPECT_EQ(base64_floats(std::span(values).first(1)), "AACAPw==");
  EXPECT_EQ(base64_floats(std::span(values).first(2)), "AACAPwAAIMA=");
  EXPECT_EQ(base64_floats({}), "");
}

}  // namespace
}  // namespace batchmill::testing
