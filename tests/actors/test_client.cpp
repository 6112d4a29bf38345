#include "tests/actors/test_client.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

namespace batchmill::testing {
namespace {

constexpr std::chrono::seconds kPatience{60};

}  // namespace

TestClient::TestClient(const std::string& endpoint, std::optional<ClientKeys> keys)
    : client_(endpoint, "test", std::move(keys)) {}

std::string TestClient::submit(const std::string& content, const Json& open,
                               const JobClient::Progress& progress) {
  const auto source = [&](std::uint64_t offset, char* buffer, std::size_t size) {
    const std::size_t count = std::min(size, content.size() - std::min(content.size(), offset));
    std::memcpy(buffer, content.data() + offset, count);
    return count;
  };
  return client_.upload(open, source, progress, kPatience).job;
}

Json TestClient::request(Json header) {
  return client_.request(std::move(header), kPatience).header;
}

std::string TestClient::request_payload(Json header) {
  return client_.request(std::move(header), kPatience).payload;
}

Json TestClient::batch(const std::string& job) {
  return request({{"what", "status"}, {"job", job}})["batch"];
}

Json TestClient::wait_until(const std::string& job, const std::function<bool(const Json&)>& holds) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < deadline) {
    Json now = batch(job);
    if (holds(now)) return now;
    std::this_thread::yield();
  }
  ADD_FAILURE() << "waited in vain: " << batch(job).dump(1);
  return Json::object();
}

Json TestClient::wait(const std::string& job) {
  return wait_until(job, [](const Json& now) {
    const std::string status = now["status"];
    return status == "completed" || status == "failed" || status == "cancelled" ||
           status == "expired";
  });
}

std::vector<Json> TestClient::results(const std::string& job) {
  std::vector<Json> lines;
  std::uint64_t from = 0;
  while (true) {
    const WireMessage page = client_.request(
        {{"what", "results"}, {"job", job}, {"from", from}, {"side", "all"}}, kPatience);
    std::size_t begin = 0;
    while (begin < page.payload.size()) {
      const std::size_t end = page.payload.find('\n', begin);
      lines.push_back(Json::parse(page.payload.substr(begin, end - begin)));
      begin = end + 1;
    }
    if (page.header["at_end"]) return lines;
    from = page.header["next"];
  }
}

std::vector<Json> TestClient::costs(const std::string& job, const std::string& by) {
  std::vector<Json> rows;
  std::uint64_t from = 0;
  while (true) {
    const WireMessage page =
        client_.request({{"what", "costs"}, {"job", job}, {"by", by}, {"from", from}}, kPatience);
    std::size_t begin = 0;
    while (begin < page.payload.size()) {
      const std::size_t end = page.payload.find('\n', begin);
      rows.push_back(Json::parse(page.payload.substr(begin, end - begin)));
      begin = end + 1;
    }
    if (page.header["at_end"]) return rows;
    from = page.header["next"];
  }
}

std::string chat_line(const std::string& custom_id, const std::string& text, int max_tokens) {
  const Json line = {{"custom_id", custom_id},
                     {"method", "POST"},
                     {"url", "/v1/chat/completions"},
                     {"body",
                      {{"model", "default"},
                       {"messages", Json::array({{{"role", "user"}, {"content", text}}})},
                       {"max_tokens", max_tokens},
                       {"min_tokens", max_tokens},
                       {"ignore_eos", true},
                       {"temperature", 0}}}};
  return line.dump() + "\n";
}

}  // namespace batchmill::testing
