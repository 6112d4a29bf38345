#include "queue/upload_session.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace batchmill {
namespace {

constexpr UploadLimits kLimits = {.max_line_bytes = 100, .credit_bytes = 64};

Json data_at(std::uint64_t offset) { return {{"op", "data"}, {"job", "j"}, {"offset", offset}}; }
Json end_at(std::uint64_t bytes) { return {{"op", "end"}, {"job", "j"}, {"bytes", bytes}}; }

std::string reply_code(const UploadSession::Step& step) {
  if (!step.reply) return "none";
  const Json& reply = *step.reply;
  return reply["op"] == "error" ? reply["code"].get<std::string>() : reply["op"].get<std::string>();
}

TEST(UploadSessionTest, HandsOutCompleteLinesAndAcksWhatIsDurable) {
  UploadSession session("j", kLimits, 0, 0);
  const auto step = session.data(data_at(0), "ab\ncd\nef");
  ASSERT_EQ(step.lines.size(), 2u);
  EXPECT_EQ(step.lines[1].bytes, "cd");
  EXPECT_EQ(reply_code(step), "none");
  EXPECT_TRUE(session.pending());
  EXPECT_EQ(session.durable(3).dump(), R"({"op":"ack","job":"j","offset":3,"limit":67})");
  EXPECT_TRUE(session.pending());
  EXPECT_EQ(session.durable(6).dump(), R"({"op":"ack","job":"j","offset":6,"limit":72})");
  EXPECT_FALSE(session.pending());
}

TEST(UploadSessionTest, EndsWithTheLastLineWithoutLf) {
  UploadSession session("j", kLimits, 0, 0);
  session.data(data_at(0), "ab\ncd");
  const auto step = session.end(end_at(5));
  EXPECT_TRUE(step.ended);
  ASSERT_EQ(step.lines.size(), 1u);
  EXPECT_EQ(step.lines[0].bytes, "cd");
  EXPECT_EQ(step.lines[0].line, 2u);
  EXPECT_EQ(step.lines[0].end_offset_bytes, 5u);
  EXPECT_EQ(session.durable(5)["offset"], 5);
  const auto again = session.end(end_at(5));
  EXPECT_TRUE(again.ended);
  EXPECT_TRUE(again.lines.empty());
  EXPECT_EQ(reply_code(session.data(data_at(3), "cd")), "ack");
  EXPECT_EQ(reply_code(session.data(data_at(3), "cde")), "upload_ended");
}

TEST(UploadSessionTest, IgnoresRepeatsAndRefusesGaps) {
  UploadSession session("j", kLimits, 0, 0);
  EXPECT_EQ(session.data(data_at(0), "ab\nc").lines.size(), 1u);
  EXPECT_TRUE(session.data(data_at(0), "ab\nc").lines.empty());
  const auto overlap = session.data(data_at(3), "cd\n");
  ASSERT_EQ(overlap.lines.size(), 1u);
  EXPECT_EQ(overlap.lines[0].bytes, "cd");
  const auto gap = session.data(data_at(7), "x\n");
  EXPECT_EQ(reply_code(gap), "bad_offset");
  EXPECT_EQ((*gap.reply)["offset"], 6);
  EXPECT_EQ((*gap.reply)["job"], "j");
  EXPECT_EQ(reply_code(session.end(end_at(9))), "bad_offset");
}

TEST(UploadSessionTest, RefusesMalformedHeaders) {
  UploadSession session("j", kLimits, 0, 0);
  for (const char* const bad : {"{}", R"({"offset":-1})", R"({"offset":"0"})", R"({"offset":1.5})",
                                R"({"offset":null})", R"({"offset":18446744073709551615})"}) {
    EXPECT_EQ(reply_code(session.data(Json::parse(bad), "x")), "bad_message") << bad;
  }
  for (const char* const bad : {"{}", R"({"bytes":-1})", R"({"bytes":0,"content_hash":5})"}) {
    const auto step = session.end(Json::parse(bad));
    EXPECT_EQ(reply_code(step), "bad_message") << bad;
    EXPECT_FALSE(step.ended);
  }
  EXPECT_EQ(session.received_bytes(), 0u);
}

TEST(UploadSessionTest, ChecksSizeAndHashAtTheEnd) {
  ContentHasher hasher;
  hasher.update("ab\n");
  UploadSession session("j", kLimits, 0, 0);
  session.data(data_at(0), "ab\n");
  EXPECT_EQ(reply_code(session.end(end_at(2))), "content_mismatch");
  Json end = end_at(3);
  end["content_hash"] = std::string(32, '0');
  EXPECT_EQ(reply_code(session.end(end)), "content_mismatch");
  end["content_hash"] = hasher.hex();
  EXPECT_TRUE(session.end(end).ended);
  EXPECT_EQ(session.content_hash(), hasher.hex());
}

TEST(UploadSessionTest, EnforcesCredit) {
  UploadSession session("j", kLimits, 0, 0);
  EXPECT_EQ(session.opened(Json::object())["limit"], 64);
  EXPECT_EQ(session.data(data_at(0), "a\n" + std::string(62, 'x')).lines.size(), 1u);
  const auto step = session.data(data_at(64), "y");
  EXPECT_EQ(reply_code(step), "credit_exceeded");
  EXPECT_EQ((*step.reply)["limit"], 64);
  EXPECT_EQ(session.durable(2)["limit"], 128);
  EXPECT_NE(reply_code(session.data(data_at(64), "y")), "credit_exceeded");
}

TEST(UploadSessionTest, LetsALineLongerThanTheCreditPass) {
  UploadSession session("j", kLimits, 0, 0);
  std::uint64_t offset = 0;
  for (int i = 0; i < 50; ++i) {
    const auto step = session.data(data_at(offset), std::string(40, 'x'));
    ASSERT_EQ(reply_code(step), "ack");
    EXPECT_EQ((*step.reply)["offset"], 0);
    offset += 40;
    EXPECT_EQ((*step.reply)["limit"], offset + 64);
  }
  const auto step = session.data(data_at(offset), "\n");
  ASSERT_EQ(step.lines.size(), 1u);
  EXPECT_TRUE(step.lines[0].too_long);
  EXPECT_EQ(session.durable(offset + 1)["offset"], offset + 1);
}

TEST(UploadSessionTest, GoesOnBehindDurableLines) {
  UploadSession session("j", kLimits, 7, 1000);
  const Json opened = session.opened({{"id", "a"}});
  EXPECT_EQ(opened["id"], "a");
  EXPECT_EQ(opened["offset"], 1000);
  EXPECT_EQ(opened["sealed"], false);
  const auto step = session.data(data_at(1000), "x\n");
  ASSERT_EQ(step.lines.size(), 1u);
  EXPECT_EQ(step.lines[0].line, 8u);
  EXPECT_EQ(step.lines[0].end_offset_bytes, 1002u);
  Json end = end_at(1002);
  end["content_hash"] = "stated";
  EXPECT_TRUE(session.end(end).ended);
  EXPECT_EQ(session.content_hash(), "stated");
}

// A client that loses its connection, repeats itself and jumps ahead, a disk that is late, a server
// that restarts: the lines stored are the content's, each once.
TEST(UploadSessionTest, StoresEveryLineOnceWhateverHappens) {
  std::mt19937 random(17);
  for (int round = 0; round < 400; ++round) {
    std::string content;
    for (std::size_t i = 0, lines = random() % 30; i < lines; ++i) {
      content += std::string(random() % 130, static_cast<char>('a' + random() % 26));
      content += random() % 4 == 0 ? "\r\n" : "\n";
    }
    if (random() % 2 == 0) content += "tail";
    std::vector<InputLine> expected;
    LineSplitter splitter(kLimits.max_line_bytes, 1, 0);
    splitter.feed(content, &expected);
    splitter.finish(&expected);

    std::vector<InputLine> disk;
    std::vector<InputLine> on_the_way;
    std::uint64_t disk_bytes = 0;
    std::optional<UploadSession> session(std::in_place, "j", kLimits, 0, 0);
    std::uint64_t next = 0, limit = session->opened(Json::object())["limit"];
    bool ended = false;
    const auto take = [&](const Json& reply) {
      if (reply.contains("limit")) limit = std::max<std::uint64_t>(limit, reply["limit"]);
      if (reply["op"] == "error") {
        ASSERT_EQ(reply["code"], "bad_offset");
        next = reply["offset"];
      }
    };
    int steps = 0;
    while (!ended || disk_bytes < content.size()) {
      ASSERT_LT(++steps, 100'000);
      const std::size_t what = random() % 20;
      if (what == 0) {  // the client reconnects
        const Json opened = session->opened(Json::object());
        next = opened["offset"];
        limit = opened["limit"];
        ended = false;
      } else if (what == 1) {  // the server restarts
        session.emplace("j", kLimits, disk.size(), disk_bytes);
        on_the_way.clear();
        const Json opened = session->opened(Json::object());
        next = opened["offset"];
        limit = opened["limit"];
        ended = false;
      } else if (what == 2) {  // the client jumps, back or ahead
        next = random() % (content.size() + 1);
      } else if (what < 8) {  // the disk writes some lines
        const std::size_t count = on_the_way.empty() ? 0 : 1 + random() % on_the_way.size();
        if (count == 0) continue;
        disk.insert(disk.end(), on_the_way.begin(), on_the_way.begin() + static_cast<long>(count));
        on_the_way.erase(on_the_way.begin(), on_the_way.begin() + static_cast<long>(count));
        disk_bytes = disk.back().end_offset_bytes;
        take(session->durable(disk_bytes));
      } else {
        UploadSession::Step step;
        if (next < content.size()) {
          const std::uint64_t most =
              std::min<std::uint64_t>(limit - std::min(next, limit), 1 + random() % 50);
          if (most == 0) continue;
          const std::string chunk = content.substr(next, most);
          step = session->data(data_at(next), chunk);
          next += chunk.size();
        } else {
          step = session->end(end_at(content.size()));
          ended = step.ended;
        }
        on_the_way.insert(on_the_way.end(), step.lines.begin(), step.lines.end());
        if (step.reply) take(*step.reply);
      }
    }
    ASSERT_EQ(disk.size(), expected.size());
    for (std::size_t i = 0; i < disk.size(); ++i) {
      ASSERT_EQ(disk[i].line, i + 1);
      ASSERT_EQ(disk[i].bytes, expected[i].bytes);
      ASSERT_EQ(disk[i].end_offset_bytes, expected[i].end_offset_bytes);
    }
  }
}

}  // namespace
}  // namespace batchmill
