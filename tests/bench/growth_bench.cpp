// What a line costs besides the model, in jobs of growing length: a whole daemon, its client and
// its store in this process, and a device that computes nothing. Prints one JSON line a job.
//
// usage: growth_bench [LINES…]   (default: 1000 10000 100000)
#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "actors/daemon.h"
#include "queue/job_client.h"
#include "tests/support/temporary_directory.h"

namespace batchmill::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{600};

// Prefers one token whatever it reads.
class NullRunner : public ModelRunner {
 public:
  explicit NullRunner(std::int32_t vocab_size) : vocab_size_(vocab_size) {}
  std::int32_t vocab_size() const override { return vocab_size_; }
  std::int32_t block_size_tokens() const override { return 16; }
  std::int32_t num_blocks() const override { return 1 << 13; }
  void forward(const Batch&, std::span<float> logits) override {
    if (num_filled_ >= logits.size()) return;  // the engine keeps its buffer
    std::memset(logits.data(), 0, logits.size_bytes());
    for (std::size_t i = 40; i < logits.size(); i += static_cast<std::size_t>(vocab_size_)) {
      logits[i] = 1.0f;
    }
    num_filled_ = logits.size();
  }

 private:
  std::int32_t vocab_size_;
  std::size_t num_filled_ = 0;
};

// Families of eight lines.
std::string line_of(int number) {
  return fmt::format(
      R"({{"custom_id":"line-{0}","method":"POST","url":"/v1/chat/completions","body":{{"model":"tiny",)"
      R"("messages":[{{"role":"system","content":"Family {1}: answer shortly and keep all names."}},)"
      R"({{"role":"user","content":"Passage {0} of the collection."}}],"max_tokens":4,"temperature":0}}}})"
      "\n",
      number, number / 8);
}

// Of this process, in MiB: now and at its peak since the last call.
double resident_mib(const char* field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field)) {
      return std::atof(line.c_str() + std::strlen(field) + 1) / 1024.0;
    }
  }
  return 0.0;
}
void reset_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

void run_job(int num_lines) {
  const TemporaryDirectory directory;
  reset_peak();
  const double before_mib = resident_mib("VmRSS");
  double seconds = 0.0;
  double first_result_s = 0.0;
  {
    DaemonOptions options;
    options.data_directory = directory.path("data");
    ServedModel served;
    served.name = "tiny";
    served.model = Model::open(std::string(BATCHMILL_TEST_DATA) + "/models/llama3/model-q4_0.gguf");
    served.price = {"2025-01", "USD", 150'000, 75'000, 600'000};
    Daemon daemon(options, {served}, [](const ServedModel& model) {
      return only({.name = "null:0",
                   .runner = std::make_unique<NullRunner>(model.model->config().vocab_size)});
    });
    JobClient client(daemon.control_endpoint(), "bench");
    const Clock::time_point start = Clock::now();
    const auto seconds_now = [&] {
      return std::chrono::duration<double>(Clock::now() - start).count();
    };
    // Lines are made as they are sent: the file is not part of the memory.
    std::string waiting;
    std::uint64_t sent = 0;
    int next = 0;
    const auto source = [&](std::uint64_t offset, char* buffer, std::size_t size) {
      waiting.erase(0, offset - sent);
      sent = offset;
      while (waiting.size() < size && next < num_lines) waiting += line_of(next++);
      const std::size_t count = std::min(size, waiting.size());
      std::memcpy(buffer, waiting.data(), count);
      return count;
    };
    const std::string job = client
                                .upload(
                                    {{"key", "growth"}}, source, [](std::uint64_t) {}, kPatience)
                                .job;
    int completed = 0;
    while (completed < num_lines) {
      const Json batch =
          client.request({{"what", "status"}, {"job", job}}, kPatience).header.at("batch");
      completed = batch.at("request_counts").at("completed");
      if (completed > 0 && first_result_s == 0.0) first_result_s = seconds_now();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    seconds = seconds_now();
    daemon.stop(kPatience);
  }
  fmt::print(
      "{{\"lines\": {}, \"seconds\": {:.3f}, \"us_per_line\": {:.1f}, \"peak_mib\": {:.1f}, "
      "\"grown_mib\": {:.1f}}}\n",
      num_lines, seconds, 1e6 * seconds / num_lines, resident_mib("VmHWM"),
      resident_mib("VmHWM") - before_mib);
  std::fflush(stdout);
}

}  // namespace
}  // namespace batchmill::bench

int main(int argc, char** argv) {
  std::vector<int> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::atoi(argv[i]));
  if (sizes.empty()) sizes = {1'000, 10'000, 100'000};
  for (const int size : sizes) batchmill::bench::run_job(size);
  return 0;
}
