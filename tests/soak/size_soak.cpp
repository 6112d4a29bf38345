// A job file of a million lines through a daemon: what it takes in memory and time, and what the
// daemon still answers meanwhile. Prints one row per measurement. Exit code 1: memory grew beyond
// its bound, or a line, a result or a sum is not what it must be; how fast it was decides nothing.
//
// usage: size_soak [--lines N] [--line-bytes N] [--directory DIR] [--step-us N] [--intake-only]
//                  [--model GGUF]
#include <fmt/format.h>
#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <thread>

#include "queue/input_stream.h"
#include "queue/job_client.h"
#include "storage/data_directory.h"
#include "tests/actors/daemon_process.h"
#include "tests/soak/job_file.h"
#include "tests/soak/latency_probe.h"
#include "tests/support/sanitized_build.h"

namespace batchmill::testing {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{60};
constexpr std::uint64_t kMaxGrowthBytes = 256ull << 20;

struct Settings {
  std::uint64_t lines = 1'000'000;
  std::size_t line_bytes = 1'074;  // a million of them: 1 GiB
  std::string directory = fs::temp_directory_path().string();
  std::int64_t step_us = 0;
  bool intake_only = false;
  std::string model;
  std::uint64_t model_lines = 200'000;
};

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

template <class... Ts>
void row(const std::string& name, fmt::format_string<Ts...> text, Ts&&... xs) {
  fmt::print("{:<58} {}\n", name, fmt::format(text, std::forward<Ts>(xs)...));
  std::fflush(stdout);
}

bool sound = true;

void require(bool holds, const std::string& what) {
  if (holds) return;
  sound = false;
  fmt::print("WRONG: {}\n", what);
}

void require_memory(std::uint64_t growth_bytes, const std::string& what) {
  if (kSanitizedBuild) {
    fmt::print("skipped: {}, as a sanitizer keeps freed memory\n", what);
  } else {
    require(growth_bytes <= kMaxGrowthBytes, what);
  }
}

// "VmRSS" or "VmHWM" of a process.
std::uint64_t memory_bytes(int pid, const std::string& field) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field + ":")) return std::stoull(line.substr(field.size() + 1)) << 10;
  }
  return 0;
}

double mib(std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// Synced batches of 1,000 values into a database of RocksDB's defaults: lines per second.
double rocksdb_alone(const std::string& directory, std::uint64_t lines, std::size_t value_bytes) {
  rocksdb::Options options;
  options.create_if_missing = true;
  rocksdb::DB* opened = nullptr;
  if (!rocksdb::DB::Open(options, directory, &opened).ok()) throw std::runtime_error("no RocksDB");
  const std::unique_ptr<rocksdb::DB> db(opened);
  rocksdb::WriteOptions durable;
  durable.sync = true;
  const std::string value(value_bytes, 'x');
  const Clock::time_point start = Clock::now();
  for (std::uint64_t line = 0; line < lines;) {
    rocksdb::WriteBatch batch;
    for (int i = 0; i < 1'000; ++i) batch.Put(fmt::format("{:024}", line++), value);
    if (!db->Write(durable, &batch).ok()) throw std::runtime_error("RocksDB cannot write");
  }
  return static_cast<double>(lines) / since(start);
}

// Runs a program to its end; returns the most memory that it held.
std::uint64_t run_program(std::vector<std::string> command) {
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  pid_t pid = -1;
  if (::posix_spawn(&pid, arguments[0], nullptr, nullptr, arguments.data(), environ) != 0) {
    throw std::runtime_error("cannot start " + command[0]);
  }
  int status = 0;
  rusage usage{};
  ::wait4(pid, &status, 0, &usage);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) throw std::runtime_error(command[0]);
  return static_cast<std::uint64_t>(usage.ru_maxrss) << 10;
}

std::uint64_t count_lines(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::uint64_t count = 0;
  for (std::vector<char> buffer(1 << 20); file.read(buffer.data(), 1 << 20), file.gcount() > 0;) {
    count += static_cast<std::uint64_t>(
        std::count(buffer.begin(), buffer.begin() + file.gcount(), '\n'));
  }
  return count;
}

JobClient::UploadResult upload(const std::string& endpoint, const std::string& path, Json open,
                               const JobClient::Progress& progress) {
  JobClient client(endpoint, "size_soak");
  const std::unique_ptr<InputStream> input = InputStream::open(path);
  open["key"] = path;
  return client.upload(
      open,
      [&](std::uint64_t offset, char* buffer, std::size_t size) {
        return input->read_at(offset, buffer, size);
      },
      progress, kPatience);
}

class SizeSoak {
 public:
  explicit SizeSoak(Settings settings) : settings_(std::move(settings)) {
    std::string pattern = settings_.directory + "/batchmill-size-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no " + pattern);
    directory_ = pattern;
    options_.num_lines = settings_.lines;
    options_.line_bytes = settings_.line_bytes;
    options_.prefix = "l";
  }
  ~SizeSoak() {
    std::error_code ignored;
    fs::remove_all(directory_, ignored);
  }

  void run() {
    const double alone = measure_alone(300);
    measure_alone(settings_.line_bytes);
    file_bytes_ = write_job_file(directory_ + "/in.jsonl", options_);
    row("job file", "{} lines, {} bytes", settings_.lines, file_bytes_);
    start({BATCHMILL_BIN "/scripted_daemon", "--step-us", std::to_string(settings_.step_us),
           "--max-num-seqs", "64"});
    const std::uint64_t idle_bytes = memory_bytes(daemon_->pid(), "VmRSS");
    take_in(alone);
    row("daemon memory, idle and most while taking in", "{:.0f} MiB, {:.0f} MiB more",
        mib(idle_bytes), mib(memory_bytes(daemon_->pid(), "VmHWM") - idle_bytes));
    if (settings_.intake_only) {
      probe_->stop();
      print_latencies();
      return;
    }
    run_short_job();
    finish_job();
    read_results("input");
    read_results("completed");
    const std::uint64_t growth = memory_bytes(daemon_->pid(), "VmHWM") - idle_bytes;
    row("daemon memory, most in all", "{:.0f} MiB more than idle", mib(growth));
    require_memory(growth, "the daemon's memory is bounded");
    daemon_->terminate();
    require(daemon_->wait() == 0, "the daemon ends in good order");
    daemon_.reset();
    if (!settings_.model.empty()) with_model();
  }

 private:
  double measure_alone(std::size_t value_bytes) const {
    const std::string directory = directory_ + "/alone";
    const double rate = rocksdb_alone(directory, settings_.lines, value_bytes);
    fs::remove_all(directory);
    row(fmt::format("RocksDB alone, synced batches of 1,000 x {} bytes", value_bytes),
        "{:.0f} lines/s, {:.1f} MB/s", rate, rate * static_cast<double>(value_bytes) / 1e6);
    return rate;
  }

  std::string endpoint() const { return DataDirectory::control_endpoint(data_); }

  void start(std::vector<std::string> command) {
    data_ = directory_ + fmt::format("/data{}", num_starts_++);
    command.insert(command.end(), {"--data", data_});
    daemon_ = std::make_unique<DaemonProcess>(command);
  }

  Json status(const std::string& job) {
    return client().request({{"what", "status"}, {"job", job}}, kPatience).header.at("batch");
  }
  JobClient& client() {
    if (client_ == nullptr) client_ = std::make_unique<JobClient>(endpoint(), "size_soak");
    return *client_;
  }

  // From the first byte to the last ack.
  void take_in(double alone) {
    const Clock::time_point start = Clock::now();
    std::thread watcher;
    const auto on_ack = [&](std::uint64_t acked) {
      acked_bytes_ = acked;
      if (!watcher.joinable()) watcher = std::thread([&] { watch_first_result(start); });
    };
    // The job's id is known before its upload ends: it is the only one.
    std::thread prober([&] {
      JobClient asks(endpoint(), "size_soak");
      while (job_.empty()) {
        const Json list = asks.request({{"what", "list"}}, kPatience).header.at("batches");
        if (!list.empty() && acked_bytes_ != 0) job_ = list[0].at("id").get<std::string>();
      }
      probe_ = std::make_unique<LatencyProbe>(endpoint(), job_, [this, n = 0u]() mutable {
        n = n * 1664525u + 1013904223u;
        const std::uint64_t durable = acked_bytes_ * settings_.lines / file_bytes_;
        return job_line_id(options_, 1 + n % std::max<std::uint64_t>(durable, 1));
      });
      probe_->set_phase("upload");
    });
    const JobClient::UploadResult uploaded =
        upload(endpoint(), directory_ + "/in.jsonl", Json::object(), on_ack);
    const double seconds = since(start);
    prober.join();
    watcher.join();
    probe_->set_phase("running");
    require(uploaded.job == job_ && uploaded.lines == settings_.lines, "every line is durable");
    const double rate = static_cast<double>(settings_.lines) / seconds;
    row("taken in durably", "{:.1f} s, {:.0f} lines/s, {:.1f} MB/s", seconds, rate,
        static_cast<double>(file_bytes_) / seconds / 1e6);
    row("share of what RocksDB does alone", "{:.2f} of its lines/s, {:.2f} of its bytes/s",
        rate / alone, static_cast<double>(file_bytes_) / seconds / (alone * 300));
    row("the device's first result after", "{:.2f} s", first_result_s_);
    started_ = start;
  }

  void watch_first_result(Clock::time_point start) {
    JobClient asks(endpoint(), "size_soak");
    while (true) {
      const Json list = asks.request({{"what", "list"}}, kPatience).header.at("batches");
      if (!list.empty() && list[0]["request_counts"]["completed"] != 0) break;
    }
    first_result_s_ = since(start);
  }

  // Ten lines behind all the others.
  void run_short_job() {
    JobFileOptions options = options_;
    options.num_lines = 10;
    options.prefix = "s";
    write_job_file(directory_ + "/short.jsonl", options);
    const Clock::time_point start = Clock::now();
    const std::string job =
        upload(endpoint(), directory_ + "/short.jsonl", Json::object(), nullptr).job;
    while (status(job)["status"] != "completed") {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    const Json long_job = status(job_);
    row("ten lines behind them wait", "{:.2f} s; then {} of the others are completed", since(start),
        long_job["request_counts"]["completed"].get<std::uint64_t>());
  }

  void finish_job() {
    Json now;
    do {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      now = status(job_);
    } while (now["status"] != "completed" && now["status"] != "failed");
    const double seconds = since(started_);
    probe_->stop();
    print_latencies();
    row("the whole job", "{:.1f} s, {:.0f} lines/s", seconds,
        static_cast<double>(settings_.lines) / seconds);
    require(now["request_counts"] ==
                Json({{"total", settings_.lines}, {"completed", settings_.lines}, {"failed", 0}}),
            "every line is completed: " + now["request_counts"].dump());
    const WireMessage costs = client().request({{"what", "costs"}, {"job", job_}}, kPatience);
    const Json ledger = Json::parse(costs.payload);
    require(ledger["lines"]["completed"] == settings_.lines, "the ledger counts every line");
    require(ledger["tokens"]["completion"] ==
                settings_.lines * static_cast<std::uint64_t>(options_.max_tokens),
            "the ledger counts every token");
  }

  void print_latencies() const {
    for (const auto& [phase, questions] : probe_->latencies()) {
      for (const auto& [question, times] : questions) {
        row(fmt::format("{} while {}", question, phase), "p50 {:.1f} ms, p99 {:.1f} ms, of {}",
            times.at(0.5), times.at(0.99), times.count());
      }
    }
  }

  void read_results(const std::string& order) {
    const std::string out = directory_ + "/out.jsonl";
    const Clock::time_point start = Clock::now();
    const std::uint64_t tool_bytes = run_program({BATCHMILL_BIN "/batchmill", "results", job_,
                                                  "--order", order, "-o", out, "--data", data_});
    const double seconds = since(start);
    const std::uint64_t count = count_lines(out);
    row(fmt::format("results streamed, {} order", order),
        "{:.0f} lines/s, {:.1f} MB/s, the tool held {:.0f} MiB",
        static_cast<double>(count) / seconds,
        static_cast<double>(fs::file_size(out)) / seconds / 1e6, mib(tool_bytes));
    require(count == settings_.lines, "every result is there once");
    require_memory(tool_bytes, "the tool holds no results");
    fs::remove(out);
  }

  // Tokens that the devices have computed for lines that are finished.
  std::uint64_t device_tokens() {
    const WireMessage costs = client().request({{"what", "costs"}, {"by", "model"}}, kPatience);
    if (costs.payload.empty()) return 0;
    const Json tokens = Json::parse(costs.payload.substr(0, costs.payload.find('\n')))["tokens"];
    return tokens["prompt_computed"].get<std::uint64_t>() +
           tokens["completion"].get<std::uint64_t>();
  }

  double device_rate(std::chrono::seconds span) {
    const std::uint64_t before = device_tokens();
    const Clock::time_point start = Clock::now();
    std::this_thread::sleep_for(span);
    return static_cast<double>(device_tokens() - before) / since(start);
  }

  // How fast lines come in while a real model works, and what that takes from the model.
  void with_model() {
    client_.reset();
    start({BATCHMILL_BIN "/batchmilld", "--model", settings_.model});
    const std::uint64_t idle_bytes = memory_bytes(daemon_->pid(), "VmRSS");
    JobFileOptions work{20'000, 0, "w", 40, 16};
    write_job_file(directory_ + "/work.jsonl", work);
    upload(endpoint(), directory_ + "/work.jsonl", {{"priority", 5}}, nullptr);
    while (device_tokens() < 2'000) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const double before = device_rate(std::chrono::seconds(15));
    row("real model, nothing else to do", "{:.0f} tokens/s", before);

    options_.num_lines = settings_.model_lines;
    options_.prefix = "m";
    const std::uint64_t bytes = write_job_file(directory_ + "/in.jsonl", options_);
    const std::uint64_t tokens_before = device_tokens();
    const Clock::time_point start = Clock::now();
    const JobClient::UploadResult uploaded =
        upload(endpoint(), directory_ + "/in.jsonl", {{"priority", -5}}, nullptr);
    const double seconds = since(start);
    const double during = static_cast<double>(device_tokens() - tokens_before) / seconds;
    require(uploaded.lines == settings_.model_lines, "every line is durable");
    row("real model, taken in meanwhile", "{:.0f} lines/s, {:.1f} MB/s in {:.1f} s",
        static_cast<double>(uploaded.lines) / seconds, static_cast<double>(bytes) / seconds / 1e6,
        seconds);
    row("real model's speed while lines came in", "{:.0f} tokens/s, {:.2f} of before", during,
        during / before);
    const double preparing = device_rate(std::chrono::seconds(15));
    const std::uint64_t growth = memory_bytes(daemon_->pid(), "VmHWM") - idle_bytes;
    row("real model's speed while lines were prepared", "{:.0f} tokens/s, {:.2f} of before",
        preparing, preparing / before);
    row("daemon memory with the real model", "{:.0f} MiB more than idle", mib(growth));
    client_.reset();
    daemon_->kill();
    daemon_->wait();
    daemon_.reset();
  }

  Settings settings_;
  JobFileOptions options_;
  std::string directory_;
  std::string data_;
  int num_starts_ = 0;
  std::uint64_t file_bytes_ = 0;
  std::atomic<std::uint64_t> acked_bytes_{0};
  std::string job_;
  Clock::time_point started_;
  double first_result_s_ = 0;
  std::unique_ptr<DaemonProcess> daemon_;
  std::unique_ptr<JobClient> client_;
  std::unique_ptr<LatencyProbe> probe_;
};

}  // namespace
}  // namespace batchmill::testing

int main(int argc, char** argv) {
  batchmill::testing::Settings settings;
  CLI::App app("a job of a million lines");
  app.add_option("--lines", settings.lines);
  app.add_option("--line-bytes", settings.line_bytes);
  app.add_option("--directory", settings.directory);
  app.add_option("--step-us", settings.step_us);
  app.add_flag("--intake-only", settings.intake_only, "end when the lines are taken in");
  app.add_option("--model", settings.model);
  app.add_option("--model-lines", settings.model_lines);
  CLI11_PARSE(app, argc, argv);
  try {
    batchmill::testing::SizeSoak(settings).run();
  } catch (const std::exception& error) {
    std::cerr << "size_soak: " << error.what() << std::endl;
    return 1;
  }
  return batchmill::testing::sound ? 0 : 1;
}
