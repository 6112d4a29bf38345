#include "actors/queries.h"

#include <gmock/gmock.h>

#include "tests/storage/store_fixture.h"

namespace batchmill {
namespace {

using testing::ElementsAre;

class QueriesTest : public StoreTest {
 protected:
  Json ask(Json request) {
    request["op"] = "request";
    return queries().answer(request).header;
  }
  // The JSON lines of all pages.
  std::vector<Json> ask_lines(Json request, Json* last = nullptr) {
    request["op"] = "request";
    std::vector<Json> lines;
    while (true) {
      const WireMessage answer = queries().answer(request);
      if (last != nullptr) *last = answer.header;
      std::string_view payload = answer.payload;
      while (!payload.empty()) {
        const std::size_t end = payload.find('\n');
        lines.push_back(Json::parse(payload.substr(0, end)));
        payload.remove_prefix(end + 1);
      }
      if (answer.header.at("at_end").get<bool>()) return lines;
      request["from"] = answer.header.at("next");
    }
  }
  Json batch(const JobId& id) {
    return ask({{"what", "status"}, {"job", id.to_string()}}).at("batch");
  }
  Queries queries() { return Queries(store_.get(), live_); }

  void append(const JobId& id, const std::vector<std::string>& texts) {
    std::vector<StoredLine> lines;
    for (const std::string& text : texts) lines.push_back({lines.size() + 1, text});
    store_->append_lines(id, lines, 1'000, kNowUs);
    ASSERT_TRUE(store_->seal(id, "hash", kNowS));
  }

  LiveJobs live_;
};

TEST_F(QueriesTest, ABatchObjectHasEveryField) {
  JobRequest request;
  request.name = "nightly";
  request.priority = 3;
  request.deadline_s = 3'600;
  request.metadata = {{"team", "x"}};
  const JobId id = prepared_job(3, request);
  finish(id, 1);
  live_ = [](const JobId&) {
    LiveJob live;
    live.lines_running = 1;
    live.tokens_per_second = 12.5;
    live.lines_per_second = 0.5;
    return live;
  };
  const Json object = batch(id);
  EXPECT_EQ(object.at("id"), id.to_string());
  EXPECT_EQ(object.at("object"), "batch");
  EXPECT_EQ(object.at("status"), "in_progress");
  EXPECT_EQ(object.at("created_at"), kNowS);
  EXPECT_EQ(object.at("expires_at"), kNowS + 3'600);
  EXPECT_EQ(object.at("completed_at"), nullptr);
  EXPECT_EQ(object.at("errors"), nullptr);
  EXPECT_EQ(object.at("output_file_id"), nullptr);
  EXPECT_EQ(object.at("request_counts"), Json::parse(R"({"total":3,"completed":1,"failed":0})"));
  EXPECT_EQ(object.at("usage"),
            Json::parse(R"({"input_tokens":101,"input_tokens_details":{"cached_tokens":60},)"
                        R"("output_tokens":7,"total_tokens":108})"));
  EXPECT_EQ(object.at("metadata"), Json::parse(R"({"team":"x"})"));
  const Json& more = object.at("batchmill");
  EXPECT_EQ(more.at("name"), "nightly");
  EXPECT_EQ(more.at("priority"), 3);
  EXPECT_EQ(more.at("paused"), false);
  EXPECT_EQ(more.at("lines_running"), 1);
  EXPECT_EQ(more.at("lines_pending"), 1);
  EXPECT_EQ(more.at("tokens_per_second"), 12.5);
  EXPECT_EQ(more.at("eta_seconds"), 4);
  EXPECT_EQ(more.at("prefix").at("achieved_tokens"), 60);
  EXPECT_EQ(more.at("preemptions"), 0);
  // 41 × 150,000 + 60 × 75,000 + 7 × 600,000 picos.
  EXPECT_EQ(more.at("cost"), "0.00001485");
  EXPECT_EQ(more.at("warnings"), Json::array());
}

TEST_F(QueriesTest, TheEndpointIsThatOfTheFirstReadableLine) {
  const JobId id = new_job();
  append(id, {"", "no json", R"({"url":"/v1/completions"})"});
  EXPECT_EQ(batch(id).at("endpoint"), "/v1/completions");
}

TEST_F(QueriesTest, TheEndpointIsFoundInALineThatIsDeepOrLong) {
  const JobId id = new_job();
  append(id, {R"({"url": "/v1/completions", "body": )" + std::string(1 << 20, '[')});
  EXPECT_EQ(batch(id).at("endpoint"), "/v1/completions");
  const JobId other = new_job();
  append(other, {R"({"custom_id":"url","url":")" + std::string(1 << 20, 'x') + "\"}",
                 R"({"custom_id":"a\"b","x":{"url":"/v1/embeddings"},"url" : "/v1/completions"})"});
  EXPECT_EQ(batch(other).at("endpoint"), nullptr);
}

TEST_F(QueriesTest, ATextOfAClientSDoesNotMakeABatchObjectLong) {
  const JobId cut = new_job();
  store_->append_lines(cut, make_lines(1, 1), 100, kNowUs);
  store_->truncate(cut, std::string(600'000, 'c'), std::string(600'000, 'm'), kNowS);
  EXPECT_LT(batch(cut).dump().size(), 4'000u);
}

TEST_F(QueriesTest, ACompletedJobHasItsFilesAndItsRate) {
  const JobId id = prepared_job(2);
  finish(id, 1);
  finish(id, 2);
  store_->end_finished_jobs(kNowS + 10);
  const Json object = batch(id);
  EXPECT_EQ(object.at("status"), "completed");
  EXPECT_TRUE(object.at("output_file_id").is_string());
  EXPECT_EQ(object.at("error_file_id"), nullptr);
  EXPECT_EQ(object.at("batchmill").at("eta_seconds"), 0);
  EXPECT_GT(object.at("batchmill").at("tokens_per_second").get<double>(), 0.0);
}

// From the first line's admission to the last line's end; tokens from the cache were not computed.
TEST_F(QueriesTest, TheRateOfAnEndedJobCountsComputedTokensWhileItRan) {
  const JobId id = prepared_job(4);
  const LineResult bad = make_failure(id, 1, "invalid_value");
  const PlanKey bad_key = plan_key_of(id, 1);
  store_->commit_results({&bad, 1}, {&bad_key, 1}, kNowS);
  for (std::uint64_t line = 2; line <= 3; ++line) {
    LineResult result = make_result(id, line);
    result.usage.recomputed_tokens = 5;
    result.times.admitted_us = kNowUs + 500'000;
    result.times.finished_us = kNowUs + 500'000 + static_cast<std::int64_t>(line - 1) * 125'000;
    const PlanKey key = plan_key_of(id, line);
    store_->commit_results({&result, 1}, {&key, 1}, kNowS);
  }
  store_->end_job(id, "batch_cancelled", kNowS + 60);
  // (42 + 5 + 14) + (43 + 5 + 21) tokens in 0.25 s.
  EXPECT_EQ(batch(id).at("batchmill").at("tokens_per_second"), 520.0);
}

TEST_F(QueriesTest, ListGoesFromNewToOld) {
  JobRequest keyed;
  keyed.idempotency_key = "k";
  const JobId first = sealed_job(1, keyed);
  const JobId second = prepared_job(1);
  const auto ids = [&](Json request) {
    request["what"] = "list";
    std::vector<std::string> found;
    const Json answer = ask(request);
    for (const Json& object : answer.at("batches")) found.push_back(object.at("id"));
    return found;
  };
  EXPECT_THAT(ids({}), ElementsAre(second.to_string(), first.to_string()));
  EXPECT_THAT(ids({{"limit", 1}}), ElementsAre(second.to_string()));
  EXPECT_THAT(ids({{"after", second.to_string()}}), ElementsAre(first.to_string()));
  EXPECT_THAT(ids({{"key", "k"}}), ElementsAre(first.to_string()));
  EXPECT_THAT(ids({{"key", "none"}}), ElementsAre());
  EXPECT_THAT(ids({{"status", "completed"}}), ElementsAre());
}

TEST_F(QueriesTest, AListIsCutToWhatAHeaderHasRoomFor) {
  JobRequest request;
  for (int i = 0; i < 16; ++i) {
    for (int c = 0; c < 512; ++c) request.metadata["key " + std::to_string(i)] += "\U0001F600";
  }
  std::vector<std::string> made;
  for (int i = 0; i < 40; ++i) made.insert(made.begin(), new_job(request).to_string());
  std::vector<std::string> listed;
  Json question = {{"what", "list"}, {"limit", 1'000}};
  bool at_end = false;
  while (!at_end) {
    const Json answer = ask(question);
    ASSERT_LE(encode_header(answer).size(), kMaxHeaderBytes);
    ASSERT_FALSE(answer.at("batches").empty());
    for (const Json& object : answer.at("batches")) listed.push_back(object.at("id"));
    at_end = answer.at("at_end");
    question["after"] = listed.back();
  }
  EXPECT_EQ(listed, made);
}

TEST_F(QueriesTest, ResultsComeInPagesOfWholeLines) {
  const JobId id = prepared_job(50);
  for (std::uint64_t line = 50; line >= 1; --line) finish(id, line);
  Json last;
  const Json request = {{"what", "results"}, {"job", id.to_string()}, {"max_bytes", 40}};
  const std::vector<Json> lines = ask_lines(request, &last);
  ASSERT_EQ(lines.size(), 50u);
  for (std::size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i].at("answer"), i + 1);
  EXPECT_EQ(last.at("ended"), false);

  Json by_end = request;
  by_end["order"] = "completed";
  EXPECT_EQ(ask_lines(by_end).front().at("answer"), 50);
}

TEST_F(QueriesTest, SidesAreToldApart) {
  const JobId id = prepared_job(2);
  finish(id, 1);
  const LineResult failure = make_failure(id, 2, "invalid_value");
  const PlanKey key = plan_key_of(id, 2);
  store_->commit_results({&failure, 1}, {&key, 1}, kNowS);
  Json request = {{"what", "results"}, {"job", id.to_string()}};
  Json header;
  EXPECT_EQ(ask_lines(request).size(), 2u);
  request["side"] = "output";
  EXPECT_EQ(ask_lines(request, &header).size(), 1u);
  EXPECT_EQ(header.at("outputs"), 1);
  EXPECT_EQ(header.at("errors"), 1);
  request["side"] = "errors";
  EXPECT_EQ(ask_lines(request).front().at("error"), "invalid_value");
  request["failed_input"] = true;
  EXPECT_EQ(ask_lines(request).front().at("line"), 2);
}

TEST_F(QueriesTest, FailedInputComesInPagesOfItsOwnSize) {
  constexpr std::size_t kLineBytes = 10'000;
  const JobId id = new_job();
  std::vector<std::string> texts;
  std::vector<LineResult> failures;
  for (std::uint64_t line = 1; line <= 20; ++line) {
    texts.push_back("{\"n\":" + std::to_string(line) + "}" + std::string(kLineBytes, ' '));
    failures.push_back(make_failure(id, line, "invalid_value"));
  }
  append(id, texts);
  store_->commit_results(failures, {}, kNowS);
  for (const char* order : {"input", "completed"}) {
    Json request = {{"op", "request"},     {"what", "results"},       {"job", id.to_string()},
                    {"side", "errors"},    {"order", order},          {"failed_input", true},
                    {"max_bytes", 25'000}, {"from", std::uint64_t{0}}};
    std::string all;
    std::uint64_t errors = 0;
    bool at_end = false;
    while (!at_end) {
      const WireMessage answer = queries().answer(request);
      ASSERT_LE(answer.payload.size(), 25'000 + kLineBytes + 100);
      all += answer.payload;
      errors += answer.header.at("errors").get<std::uint64_t>();
      request["from"] = answer.header.at("next");
      at_end = answer.header.at("at_end");
    }
    std::string wanted;
    for (const std::string& text : texts) wanted += text + "\n";
    EXPECT_TRUE(all == wanted) << order;
    EXPECT_EQ(errors, 20u);
  }
}

TEST_F(QueriesTest, LinesThatEndedWithTheirJobAreFailuresWithTheirIds) {
  const JobId id = new_job();
  append(id,
         {R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{}})", "", "no json"});
  store_->end_job(id, "batch_cancelled", kNowS);
  const std::vector<Json> lines = ask_lines({{"what", "results"}, {"job", id.to_string()}});
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].at("custom_id"), "a");
  EXPECT_EQ(lines[0].at("response"), nullptr);
  EXPECT_EQ(lines[0].at("error").at("code"), "batch_cancelled");
  EXPECT_EQ(lines[0].at("error").at("line"), 1);
  EXPECT_EQ(lines[1].at("custom_id"), nullptr);
  EXPECT_EQ(lines[1].at("error").at("line"), 3);
  EXPECT_EQ(batch(id).at("request_counts"), Json::parse(R"({"total":2,"completed":0,"failed":2})"));
  const std::vector<Json> costs =
      ask_lines({{"what", "costs"}, {"job", id.to_string()}, {"by", "line"}});
  ASSERT_EQ(costs.size(), 2u);
  EXPECT_EQ(costs[0].at("custom_id"), "a");
}

TEST_F(QueriesTest, OneLineByItsId) {
  const JobId id = prepared_job(2);
  finish(id, 2);
  Json request = {{"what", "results"}, {"job", id.to_string()}, {"custom_id", "id-2"}};
  EXPECT_EQ(ask_lines(request).front().at("answer"), 2);
  request["custom_id"] = "id-1";
  EXPECT_EQ(ask_lines(request).size(), 0u);
  request["custom_id"] = "nobody";
  EXPECT_EQ(ask(request).at("code"), "no_such_line");
}

// Lines whose ids no index has: their job ended before they were prepared, or they still wait.
TEST_F(QueriesTest, ALineIsFoundThatWasNeverPrepared) {
  const auto line = [](const std::string& id, std::size_t num_bytes) {
    return R"({"custom_id":")" + id + R"(","x":")" + std::string(num_bytes, 'x') + "\"}";
  };
  const JobId id = new_job();
  // In several parts; the first line that has the id owns it, however it is written.
  append(id,
         {line("a", 3 << 20), "no json", line("\\u0062", 3 << 20), line("b", 10), line("b", 10)});
  Json last;
  Json results = {{"what", "results"}, {"job", id.to_string()}, {"custom_id", "b"}};
  EXPECT_EQ(ask_lines(results, &last).size(), 0u);
  EXPECT_EQ(last.at("op"), "response");
  Json explain = {{"what", "explain"}, {"job", id.to_string()}, {"custom_id", "b"}};
  const auto life = [&] {
    Json answer;
    do {
      answer = ask(explain);
      explain["from"] = answer.value("next", std::uint64_t{0});
    } while (answer.at("line").is_null());
    return answer.at("line");
  };
  EXPECT_EQ(life().at("line"), 3);
  EXPECT_EQ(life().at("status"), "queued");

  store_->end_job(id, "batch_cancelled", kNowS);
  const std::vector<Json> found = ask_lines(results);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].at("custom_id"), "b");
  EXPECT_EQ(found[0].at("error").at("code"), "batch_cancelled");
  EXPECT_EQ(found[0].at("error").at("line"), 3);
  EXPECT_EQ(life().at("error"), "batch_cancelled");
  EXPECT_EQ(life().at("line"), 3);
  // What was not billed has no currency, here as in the ledger.
  EXPECT_EQ(life().at("cost").at("currency"), nullptr);
  EXPECT_EQ(life().at("cost").at("price_version"), nullptr);
  results["custom_id"] = "nobody";
  Json answer;
  do {
    answer = ask(results);
    results["from"] = answer.value("next", std::uint64_t{0});
  } while (answer.at("op") == "response");
  EXPECT_EQ(answer.at("code"), "no_such_line");
}

TEST_F(QueriesTest, CostsOfAJobAreTheSumOfItsLines) {
  const JobId id = prepared_job(20);
  for (std::uint64_t line = 1; line <= 20; ++line) finish(id, line);
  const std::vector<Json> total = ask_lines({{"what", "costs"}, {"job", id.to_string()}});
  ASSERT_EQ(total.size(), 1u);
  EXPECT_EQ(total[0].at("lines"), Json::parse(R"({"completed":20,"failed":0})"));
  EXPECT_EQ(total[0].at("currency"), "USD");
  EXPECT_EQ(total[0].at("price_version"), "2024-01");
  const std::vector<Json> lines =
      ask_lines({{"what", "costs"}, {"job", id.to_string()}, {"by", "line"}, {"max_bytes", 1'000}});
  ASSERT_EQ(lines.size(), 20u);
  for (const char* key : {"prompt", "prompt_cached", "prompt_computed", "completion"}) {
    std::int64_t sum = 0;
    for (const Json& line : lines) sum += line.at("tokens").at(key).get<std::int64_t>();
    EXPECT_EQ(total[0].at("tokens").at(key), sum) << key;
  }
  EXPECT_EQ(lines[0].at("cost"),
            Json::parse(R"({"prompt":"0.00000615","prompt_cached":"0.0000045",)"
                        R"("completion":"0.0000042","total":"0.00001485"})"));
  EXPECT_EQ(ask_lines({{"what", "costs"}, {"by", "model"}}).front().at("model"), "smol");
  EXPECT_EQ(ask_lines({{"what", "costs"}, {"by", "day"}}).front().at("day"), "2023-11-14");
}

TEST_F(QueriesTest, ExplainsALine) {
  const JobId id = prepared_job(2);
  finish(id, 1);
  const Json done =
      ask({{"what", "explain"}, {"job", id.to_string()}, {"custom_id", "id-1"}}).at("line");
  EXPECT_EQ(done.at("status"), "completed");
  EXPECT_EQ(done.at("device"), "cpu:0");
  EXPECT_EQ(done.at("tokens").at("prompt_cached"), 60);
  EXPECT_EQ(done.at("queued_at"), "2023-11-14T22:13:20.000000Z");
  EXPECT_EQ(done.at("cost").at("total"), "0.00001485");
  EXPECT_EQ(done.at("cost").at("currency"), "USD");
  EXPECT_EQ(done.at("cost").at("price_version"), "2024-01");
  const Json waiting =
      ask({{"what", "explain"}, {"job", id.to_string()}, {"custom_id", "id-2"}}).at("line");
  EXPECT_EQ(waiting.at("status"), "queued");
  const LineKey key{id, 2};
  store_->begin_attempts({&key, 1});
  EXPECT_EQ(ask({{"what", "explain"}, {"job", id.to_string()}, {"custom_id", "id-2"}})
                .at("line")
                .at("status"),
            "started");
}

// Lines without an id, and the second of two with the same one.
TEST_F(QueriesTest, ExplainsALineByItsNumber) {
  const JobId id = new_job();
  append(id, {R"({"custom_id":"a"})", "no json", "", R"({"custom_id":"a"})"});
  const auto explain = [&](std::uint64_t line) {
    return ask({{"what", "explain"}, {"job", id.to_string()}, {"line", line}});
  };
  EXPECT_EQ(explain(2).at("line").at("line"), 2);
  EXPECT_EQ(explain(2).at("line").at("custom_id"), nullptr);
  EXPECT_EQ(explain(4).at("line").at("line"), 4);
  EXPECT_EQ(explain(4).at("line").at("custom_id"), "a");
  for (const std::uint64_t none : {3, 5}) EXPECT_EQ(explain(none).at("code"), "no_such_line");
}

TEST_F(QueriesTest, QuestionsThatMakeNoSenseAreAnsweredAsErrors) {
  const JobId id = prepared_job(1);
  const auto code = [&](const Json& request) {
    const Json answer = ask(request);
    EXPECT_EQ(answer.at("op"), "error");
    return answer.value("code", "");
  };
  EXPECT_EQ(code({{"what", "status"}, {"job", "batch_nonsense"}}), "no_such_job");
  EXPECT_EQ(code({{"what", "status"}}), "invalid_request");
  EXPECT_EQ(code({{"what", "status"}, {"job", 7}}), "invalid_request");
  EXPECT_EQ(code({{"what", "poem"}}), "invalid_request");
  EXPECT_EQ(code(Json::object()), "invalid_request");
  EXPECT_EQ(code({{"what", "results"}, {"job", id.to_string()}, {"side", "dark"}}),
            "invalid_request");
  EXPECT_EQ(code({{"what", "results"}, {"job", id.to_string()}, {"from", -1}}), "invalid_request");
  EXPECT_EQ(code({{"what", "costs"}, {"by", "line"}}), "invalid_request");
  EXPECT_EQ(code({{"what", "list"}, {"after", "x"}}), "no_such_job");
}

TEST_F(QueriesTest, AnswersCarryTheRequestSId) {
  EXPECT_EQ(ask({{"what", "list"}, {"id", "7"}}).at("id"), "7");
  EXPECT_EQ(ask({{"what", "poem"}, {"id", "8"}}).at("id"), "8");
}

}  // namespace
}  // namespace batchmill
