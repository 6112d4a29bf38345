#include "tests/actors/test_daemon.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <thread>

#include "storage/data_directory.h"

namespace batchmill::testing {
namespace {

constexpr std::chrono::seconds kPatience{60};

}  // namespace

TemporaryDirectory::TemporaryDirectory() {
  std::string pattern = (std::filesystem::temp_directory_path() / "batchmill-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  path_ = pattern;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

TestDaemon::TestDaemon(Options options) : options_(std::move(options)) {}

void TestDaemon::start() {
  DaemonOptions options;
  options.data_directory = directory_.path() + "/data";
  options.engine = options_.engine;
  options.on_fatal = [this](const std::string& reason) {
    const std::lock_guard lock(mutex_);
    fatal_reason_ = reason;
  };
  ServedModel served;
  served.name = options_.model_name;
  served.model =
      Model::open(std::string(BATCHMILL_TEST_DATA) + "/models/llama3/" + options_.model_file);
  served.price = options_.price;
  daemon_ = std::make_unique<Daemon>(
      options, std::vector<ServedModel>{served}, [this](const ServedModel& model) {
        ScriptedRunnerOptions scripted;
        scripted.vocab_size = model.model->config().vocab_size;
        scripted.block_size_tokens = options_.block_size_tokens;
        scripted.num_blocks = options_.num_blocks;
        scripted.before_step = options_.before_step;
        auto runner = std::make_unique<ScriptedRunner>(std::move(scripted));
        runner_ = runner.get();
        return Device{"scripted:0", std::move(runner)};
      });
  client_ = std::make_unique<JobClient>(daemon_->control_endpoint(), "test");
}

void TestDaemon::stop(std::chrono::milliseconds drain_timeout) {
  client_.reset();
  daemon_->stop(drain_timeout);
  daemon_.reset();
  runner_ = nullptr;
}

std::string TestDaemon::submit(const std::string& content, Json open,
                               const JobClient::Progress& progress) {
  if (!open.contains("key")) open["key"] = "key-" + std::to_string(next_key_++);
  const auto source = [&](std::uint64_t offset, char* buffer, std::size_t size) {
    const std::size_t count = std::min(size, content.size() - std::min(content.size(), offset));
    std::memcpy(buffer, content.data() + offset, count);
    return count;
  };
  return client_->upload(open, source, progress, kPatience).job;
}

Json TestDaemon::request(Json header) {
  return client_->request(std::move(header), kPatience).header;
}

std::string TestDaemon::request_payload(Json header) {
  return client_->request(std::move(header), kPatience).payload;
}

Json TestDaemon::batch(const std::string& job) {
  return request({{"what", "status"}, {"job", job}})["batch"];
}

Json TestDaemon::wait_until(const std::string& job, const std::function<bool(const Json&)>& holds) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < deadline) {
    Json now = batch(job);
    if (holds(now)) return now;
    std::this_thread::yield();
  }
  ADD_FAILURE() << "waited in vain: " << batch(job).dump(1);
  return Json::object();
}

void TestDaemon::wait_for(const std::function<bool()>& holds) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) {
      ADD_FAILURE() << "waited in vain";
      return;
    }
    std::this_thread::yield();
  }
}

std::string TestDaemon::fatal_reason() const {
  const std::lock_guard lock(mutex_);
  return fatal_reason_;
}

Json TestDaemon::wait(const std::string& job) {
  return wait_until(job, [](const Json& now) {
    const std::string status = now["status"];
    return status == "completed" || status == "failed" || status == "cancelled" ||
           status == "expired";
  });
}

std::vector<Json> TestDaemon::results(const std::string& job) {
  std::vector<Json> lines;
  std::uint64_t from = 0;
  while (true) {
    const WireMessage page = client_->request(
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

std::vector<Json> TestDaemon::costs(const std::string& job, const std::string& by) {
  std::vector<Json> rows;
  std::uint64_t from = 0;
  while (true) {
    const WireMessage page =
        client_->request({{"what", "costs"}, {"job", job}, {"by", by}, {"from", from}}, kPatience);
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
