#include "actors/truncation.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/actors/test_daemon.h"

namespace batchmill::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// "su a" is a system, a user's, a blank (left out) and an assistant's message; t: a tool's result,
// d: a developer's.
Json conversation(std::string_view roles) {
  Json messages = Json::array();
  for (const char role : roles) {
    const char* const name = role == 's'   ? "system"
                             : role == 'u' ? "user"
                             : role == 'a' ? "assistant"
                             : role == 't' ? "tool"
                                           : "developer";
    messages.push_back({{"role", name}, {"content", fmt::format("message {}", messages.size())}});
  }
  return messages;
}

// One token for each message.
Prompts one_token_each(const Json& messages) {
  Prompts prompts;
  prompts.token_ids.emplace_back(messages.size(), 7);
  return prompts;
}

TEST(TruncationTest, FindsTheTurnsOfAConversation) {
  EXPECT_THAT(find_turns(conversation("suauau")).begins, ElementsAre(1, 3, 5));
  EXPECT_THAT(find_turns(conversation("sduatataua")).begins, ElementsAre(2, 8));
  EXPECT_THAT(find_turns(conversation("auau")).begins, ElementsAre(0, 1, 3));
  EXPECT_THAT(find_turns(conversation("uuu")).begins, ElementsAre(0, 1, 2));
  EXPECT_THAT(find_turns(conversation("suasu")).begins, ElementsAre(1, 3));
  EXPECT_THAT(find_turns(conversation("satat")).begins, ElementsAre(1));
  EXPECT_THAT(find_turns(conversation("ss")).begins, IsEmpty());
  EXPECT_EQ(find_turns(conversation("ss")).num_leading, 2u);
  EXPECT_THAT(find_turns(conversation("sas")).begins, ElementsAre(1));
}

TEST(TruncationTest, DropsTheFewestTurnsThatAreEnough) {
  std::mt19937 random(5);
  for (int round = 0; round < 500; ++round) {
    std::string roles = random() % 2 == 0 ? "s" : "";
    for (int i = static_cast<int>(random() % 60); i >= 0; --i) roles += "uaatu"[random() % 5];
    const Json messages = conversation(roles);
    const ConversationTurns turns = find_turns(messages);
    const auto limit = static_cast<std::int64_t>(random() % (messages.size() + 2));
    int num_built = 0;
    const TruncatedPrompt cut = drop_oldest_turns(messages, limit, [&](const Json& kept) {
      ++num_built;
      return one_token_each(kept);
    });
    // One after another, what the search must find.
    std::size_t dropped = 0;
    const auto left = [&] { return messages.size() - (turns.begins[dropped] - turns.num_leading); };
    while (static_cast<std::int64_t>(left()) > limit && dropped + 1 < turns.begins.size()) {
      ++dropped;
    }
    ASSERT_EQ(cut.dropped_turns, static_cast<std::int32_t>(dropped)) << roles << " " << limit;
    EXPECT_EQ(cut.dropped_messages,
              static_cast<std::int32_t>(turns.begins[dropped] - turns.num_leading));
    EXPECT_EQ(cut.prompts.token_ids.front().size(), left());
    EXPECT_LE(num_built, 8);  // of up to 61 turns
  }
}

TEST(TruncationTest, KeepsSystemPromptAndNewestTurnWhole) {
  const Json messages = conversation("suatuatatu");
  std::vector<Json> built;
  const TruncatedPrompt cut = drop_oldest_turns(messages, 2, [&](const Json& kept) {
    built.push_back(kept);
    return one_token_each(kept);
  });
  ASSERT_GE(built.size(), 2u);
  EXPECT_EQ(built[1], Json::array({messages[0], messages[9]}));
  EXPECT_EQ(cut.dropped_turns, 2);
  EXPECT_EQ(cut.dropped_messages, 8);
}

TEST(TruncationTest, KeepsRoomForAnAnswer) {
  EXPECT_EQ(untruncated_prompt_tokens(1000, 10), 990);
  EXPECT_EQ(untruncated_prompt_tokens(1000, 250), 750);
  EXPECT_EQ(untruncated_prompt_tokens(1000, 100000), 750);
  EXPECT_EQ(untruncated_prompt_tokens(3, 100), 2);
}

// `roles` as conversation's; message i says "text i " and `filler`.
std::string truncated_line(const std::string& custom_id, std::string_view roles,
                           const std::string& filler, const Json& more = Json::object()) {
  Json messages = conversation(roles);
  for (Json& message : messages) {
    message["content"] = message["content"].get<std::string>() + " " + filler;
  }
  Json body = {{"messages", std::move(messages)},
               {"truncation", "auto"},
               {"max_tokens", 4},
               {"temperature", 0},
               {"return_token_ids", true}};
  body.update(more);
  return Json({{"custom_id", custom_id},
               {"method", "POST"},
               {"url", "/v1/chat/completions"},
               {"body", std::move(body)}})
             .dump() +
         "\n";
}

TestDaemonOptions small_context() {
  TestDaemonOptions options;
  options.max_context_tokens = 200;
  options.engine.max_num_seqs = 2;
  return options;
}

Json by_id(const std::vector<Json>& lines, const std::string& custom_id) {
  for (const Json& line : lines) {
    if (line["custom_id"] == custom_id) return line;
  }
  ADD_FAILURE() << "no line " << custom_id;
  return {};
}

TEST(TruncationTest, SaysInTheResultWhatWasDropped) {
  TestDaemon daemon(small_context());
  daemon.start();
  const std::string long_text(60, 'x');
  const std::string job = daemon.submit(
      truncated_line("short", "sua", "y") + truncated_line("long", "suauauauau", long_text) +
      truncated_line("never", "suau", std::string(1500, 'q')) +
      truncated_line("off", "suauauauau", long_text, {{"truncation", "disabled"}}) +
      truncated_line("plain", "u", "y", {{"truncation", nullptr}}));
  const Json batch = daemon.wait(job);
  EXPECT_EQ(batch["request_counts"], Json({{"total", 5}, {"completed", 3}, {"failed", 2}}));
  const std::vector<Json> lines = daemon.results(job);

  const Json none = {{"dropped_turns", 0}, {"dropped_messages", 0}};
  EXPECT_EQ(by_id(lines, "short")["response"]["body"]["truncation"], none);
  EXPECT_FALSE(by_id(lines, "plain")["response"]["body"].contains("truncation"));

  const Json cut = by_id(lines, "long")["response"]["body"];
  const int turns = cut["truncation"]["dropped_turns"];
  EXPECT_GT(turns, 0);
  EXPECT_LT(turns, 5);
  EXPECT_EQ(cut["truncation"]["dropped_messages"], 2 * turns);
  EXPECT_LE(cut["usage"]["prompt_tokens"], 196);
  EXPECT_EQ(cut["usage"]["completion_tokens"], 4);

  for (const char* const id : {"never", "off"}) {
    const Json error = by_id(lines, id)["error"];
    EXPECT_EQ(error["code"], "context_length_exceeded");
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("context is 200 tokens"));
  }
  EXPECT_THAT(by_id(lines, "never")["error"]["message"].get<std::string>(),
              HasSubstr("1 oldest turns dropped"));
  daemon.stop();
}

// The prompt that is left is that of the conversation without its oldest turns.
TEST(TruncationTest, RunsWhatTheShorterConversationWouldRun) {
  TestDaemon daemon(small_context());
  daemon.start();
  const std::string text(60, 'x');
  const std::string job = daemon.submit(truncated_line("long", "suauauauau", text));
  daemon.wait(job);
  const Json cut = daemon.results(job).front()["response"]["body"];
  Json messages = conversation("suauauauau");
  for (Json& message : messages) {
    message["content"] = message["content"].get<std::string>() + " " + text;
  }
  const auto dropped = cut["truncation"]["dropped_messages"].get<std::size_t>();
  messages.erase(messages.begin() + 1, messages.begin() + 1 + static_cast<std::ptrdiff_t>(dropped));
  const std::string shorter = daemon.submit(
      truncated_line("shorter", "u", "", {{"messages", messages}, {"truncation", "disabled"}}));
  daemon.wait(shorter);
  const Json whole = daemon.results(shorter).front()["response"]["body"];
  EXPECT_EQ(cut["prompt_token_ids"], whole["prompt_token_ids"]);
  EXPECT_EQ(cut["choices"][0]["token_ids"], whole["choices"][0]["token_ids"]);
  daemon.stop();
}

TEST(TruncationTest, KeepsTheCountOverARestart) {
  const std::string text(60, 'x');
  std::string content;
  for (int i = 0; i < 300; ++i) {
    content +=
        truncated_line(fmt::format("line-{}", i), "suauauauau", fmt::format("{} {}", text, i));
  }
  TestDaemon daemon(small_context());
  daemon.start();
  const std::string job = daemon.submit(content);
  daemon.wait_until(job, [](const Json& now) {
    return now["request_counts"]["completed"] > 5 &&
           !now["batchmill"]["prefix"]["possible_tokens"].is_null();
  });
  daemon.stop(std::chrono::milliseconds(0));
  daemon.options().model_file = "model-q8_0.gguf";  // so that waiting lines are prepared again
  daemon.start();
  EXPECT_EQ(daemon.wait(job)["request_counts"]["completed"], 300);
  for (const Json& line : daemon.results(job)) {
    const Json& truncation = line["response"]["body"]["truncation"];
    EXPECT_GT(truncation["dropped_turns"], 0);
    EXPECT_EQ(truncation["dropped_messages"], 2 * truncation["dropped_turns"].get<int>());
  }
  daemon.stop();
}

}  // namespace
}  // namespace batchmill::testing
