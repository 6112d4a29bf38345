// What hostile clients cost a daemon and those who share it: batchmilld with a small model, first
// each kind of them alone, then all at once while many clients submit jobs. Prints memory, open
// files and how long others wait; exit code 1 if the daemon took more than it may, or if anything
// of anybody's job is lost, double or wrong. How fast it was decides nothing.
//
// usage: overload_soak [--clients N] [--jobs N] [--connections N] [--only KIND] [--together]
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "storage/data_directory.h"
#include "tests/actors/daemon_process.h"
#include "tests/actors/job_audit.h"
#include "tests/actors/test_client.h"
#include "tests/soak/hostile_clients.h"
#include "tests/soak/job_file.h"
#include "tests/soak/latency_probe.h"
#include "tests/support/process_usage.h"
#include "tests/support/sanitized_build.h"
#include "tests/support/temporary_directory.h"

namespace batchmill::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// What queue/README.md lets these clients cost, all of them together, in MiB: uploads 256, answers
// 256 and within libzmq 2 for each of 100 clients, messages that are worked on 64, half a message
// of 2 from each of 200, a message without an end 40.
constexpr std::uint64_t kMaxGrowthBytes = (256ull + 256 + 2 * 100 + 64 + 2 * 200 + 40) << 20;
// The store's 512, 256 of the process, and [queue] max_connections that are served or wait.
constexpr std::size_t kMaxFiles = 512 + 256 + 2 * 1024;
constexpr std::size_t kLogTailBytes = 8 << 10;  // shown where something failed
constexpr std::size_t kMaxLogBytes = 1 << 20;
constexpr std::chrono::seconds kPatience{120};

struct Settings {
  int clients = 200;
  int jobs = 3;  // of each client; the first is larger than its part of the credit
  int connections = 10'000;
  bool together = false;  // leaves out the kinds alone
  std::string only;  // the kinds of hostile clients whose names begin so
};
Settings settings;

std::vector<HostileKind> chosen_kinds() {
  std::vector<HostileKind> kinds;
  for (const HostileKind& kind : hostile_kinds()) {
    if (std::string_view(kind.name).starts_with(settings.only)) kinds.push_back(kind);
  }
  return kinds;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double mib(std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// Of tcp on loopback, that nobody has at the moment.
int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool bound = ::bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  ::close(fd);
  if (!bound) throw std::runtime_error("no free port");
  return ntohs(address.sin_port);
}

// Most memory and files that a process held while it was watched.
class Watch {
 public:
  explicit Watch(int pid) : pid_(pid), files_(open_files(pid)) {
    forget_peak(pid);
    thread_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        files_ = std::max(files_.load(), open_files(pid_));
        std::this_thread::sleep_for(milliseconds(50));
      }
    });
  }
  std::uint64_t bytes() const { return peak_resident_bytes(pid_); }
  std::size_t files() const { return files_; }

 private:
  int pid_;
  std::atomic<std::size_t> files_;
  std::jthread thread_;
};

// How long the clients' steps took, from all their threads.
struct Waits {
  std::mutex mutex;
  Latencies taken;  // from the beginning until the last line is durable
  Latencies done;  // … has its result
  std::uint64_t most_unacked_bytes = 0;
};

class OverloadSoak : public ::testing::Test {
 protected:
  OverloadSoak()
      : tcp_(fmt::format("tcp://127.0.0.1:{}", free_port())),
        daemon_({BATCHMILL_BIN "/batchmilld", "--model",
                 BATCHMILL_TEST_DATA "/models/llama3/model-q4_0.gguf", "--data", data(),
                 "--threads", "1", "--config", directory_.write("c.toml", config())}) {}

  void TearDown() override {
    if (!HasFailure()) return;
    daemon_.kill();
    const int end = daemon_.wait();
    const std::string said = daemon_.said();
    fmt::print("the daemon {}; it said at last:\n{}\n",
               end == -SIGKILL ? "was running" : fmt::format("had ended with {}", end),
               said.substr(said.size() - std::min(said.size(), kLogTailBytes)));
  }

  std::string config() const {
    return fmt::format(
        "[queue]\nendpoint = \"{}\"\n[prices]\nversion = \"1\"\n[prices.default]\n"
        "input = \"0.15\"\ncached_input = \"0.075\"\noutput = \"0.6\"\n",
        tcp_);
  }
  std::string data() const { return directory_.path("data"); }
  std::string endpoint() const { return DataDirectory::control_endpoint(data()); }

  std::string content(const std::string& prefix, std::uint64_t lines, std::size_t line_bytes) {
    const JobFileOptions options{.num_lines = lines, .line_bytes = line_bytes, .prefix = prefix};
    std::string text;
    for (std::uint64_t line = 1; line <= lines; ++line) text += job_line(options, line);
    return text;
  }

  void wait_for(const std::string& what, const std::function<bool()>& holds) {
    const Clock::time_point start = Clock::now();
    while (!holds()) {
      if (Clock::now() - start > kPatience) {
        ADD_FAILURE() << "waited in vain: " << what;
        return;
      }
      std::this_thread::sleep_for(milliseconds(20));
    }
  }

  // One client: a job larger than its part of the credit, then small ones, each on a connection of
  // its own, to their ends.
  void submit_jobs(const std::string& phase, int client, Waits* waits) {
    for (int i = 0; i < settings.jobs; ++i) {
      const std::uint64_t lines = i == 0 ? 40 : 20;
      const std::string key = fmt::format("{}-{}-{}", phase, client, i);
      const std::string text = content(key + "-", lines, i == 0 ? 40'000 : 300);
      const Clock::time_point start = Clock::now();
      std::uint64_t sent = 0;
      std::uint64_t most_unacked = 0;
      JobClient submitter(endpoint(), "submitter");
      std::uint64_t acked = 0;
      const std::string job = submitter
                                  .upload(
                                      {{"key", key}},
                                      [&](std::uint64_t offset, char* buffer, std::size_t size) {
                                        if (offset >= text.size()) return std::size_t{0};
                                        const std::size_t count = text.copy(buffer, size, offset);
                                        sent = std::max(sent, offset + count);
                                        most_unacked = std::max(most_unacked, sent - acked);
                                        return count;
                                      },
                                      [&](std::uint64_t offset) { acked = offset; }, kPatience)
                                  .job;
      const double taken = seconds_since(start);
      TestClient user(endpoint());
      wait_for("the end of " + key, [&] { return user.batch(job)["status"] == "completed"; });
      const double done = seconds_since(start);
      expect_exact(user, job, lines, 0);
      const std::lock_guard lock(waits->mutex);
      waits->taken.add(taken);
      waits->done.add(done);
      waits->most_unacked_bytes = std::max(waits->most_unacked_bytes, most_unacked);
    }
  }

  void submit_all(const std::string& phase) {
    Waits waits;
    const Clock::time_point start = Clock::now();
    std::vector<std::jthread> clients;
    for (int i = 0; i < settings.clients; ++i) {
      clients.emplace_back([this, &phase, &waits, i] {
        try {
          submit_jobs(phase, i, &waits);
        } catch (const std::exception& error) {
          ADD_FAILURE() << "client " << i << ": " << error.what();
        }
      });
    }
    clients.clear();
    fmt::print(
        "{} clients, {} jobs each, {}: {:.1f} s; a job is durable after p50 {:.2f}, p99 {:.2f} s, "
        "completed after p50 {:.2f}, p99 {:.2f} s; at most {:.2f} MiB unacked\n",
        settings.clients, settings.jobs, phase, seconds_since(start), waits.taken.at(0.5),
        waits.taken.at(0.99), waits.done.at(0.5), waits.done.at(0.99),
        mib(waits.most_unacked_bytes));
    std::fflush(stdout);
  }

  void print_usage(const std::string& name, double seconds, std::uint64_t before,
                   const Watch& watch) {
    fmt::print("{:<40} {:5.1f} s  {:4.0f} -> {:4.0f} -> {:4.0f} MiB  {:5} files\n", name, seconds,
               mib(before), mib(watch.bytes()), mib(resident_bytes(daemon_.pid())), watch.files());
    std::fflush(stdout);
  }

  // Until the connections of clients that have left are gone.
  void wait_until_left() {
    wait_for("those who left are gone",
             [&] { return open_sockets(daemon_.pid()) <= idle_sockets_; });
  }

  void attack_alone(const Target& target, const HostileKind& kind) {
    probe_->set_phase(kind.name);
    const std::uint64_t before = resident_bytes(daemon_.pid());
    const Watch watch(daemon_.pid());
    const Clock::time_point start = Clock::now();
    kind.attack(target, 0, {});
    const double seconds = seconds_since(start);
    wait_until_left();
    print_usage(kind.name, seconds, before, watch);
    expect_bounded(watch);
  }

  void attack_together(const Target& target) {
    probe_->set_phase("all at once");
    const std::uint64_t before = resident_bytes(daemon_.pid());
    const Watch watch(daemon_.pid());
    const Clock::time_point start = Clock::now();
    std::vector<std::jthread> attackers;
    const std::vector<HostileKind> kinds = chosen_kinds();
    std::vector<std::atomic<std::uint64_t>> rounds(kinds.size());
    for (std::size_t i = 0; i < rounds.size(); ++i) {
      attackers.emplace_back([&target, &kinds, &rounds, i](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
          kinds[i].attack(target, rounds[i], stop);
          ++rounds[i];
        }
      });
    }
    submit_all("attacked");
    wait_for("every kind has attacked", [&] {
      return std::ranges::all_of(rounds, [](const auto& count) { return count != 0; });
    });
    for (std::jthread& attacker : attackers) attacker.request_stop();
    attackers.clear();
    probe_->set_phase("nothing any more");
    const double seconds = seconds_since(start);
    wait_until_left();
    print_usage("all at once", seconds, before, watch);
    expect_bounded(watch);
    for (std::size_t i = 0; i < rounds.size(); ++i) {
      fmt::print("  {} x {}\n", rounds[i].load(), kinds[i].name);
    }
  }

  void expect_bounded(const Watch& watch) {
    if (kSanitizedBuild) {
      fmt::print("skipped: the limit of memory, as a sanitizer keeps freed memory\n");
    } else {
      EXPECT_LE(watch.bytes(), idle_bytes_ + kMaxGrowthBytes);
    }
    EXPECT_LE(watch.files(), kMaxFiles);
  }

  // Jobs that no client of ours has completed: what hostile ones began. None of them is lost.
  void end_what_was_begun(TestClient& user) {
    std::size_t completed = 0;
    std::string after;
    while (true) {
      const Json page =
          user.request({{"what", "list"}, {"limit", 1'000}, {"after", after}})["batches"];
      if (page.empty()) break;
      for (const Json& batch : page) {
        after = batch["id"];
        if (batch["status"] == "completed") {
          ++completed;
        } else if (batch["status"] != "failed") {
          user.request({{"what", "cancel"}, {"job", after}});
          EXPECT_EQ(user.wait(after)["status"], "cancelled");
        }
      }
    }
    // The probe's, what was replayed, and both times the clients'.
    EXPECT_EQ(completed, static_cast<std::size_t>(2 + 2 * settings.clients * settings.jobs));
  }

  TemporaryDirectory directory_;
  std::string tcp_;
  DaemonProcess daemon_;
  std::uint64_t idle_bytes_ = 0;
  std::size_t idle_sockets_ = 0;
  std::unique_ptr<LatencyProbe> probe_;
};

TEST_F(OverloadSoak, HostileClientsCostNobodyElseAJobAndTheDaemonLittle) {
  TestClient user(endpoint());
  constexpr std::uint64_t kManyLines = 2'000;
  const JobFileOptions many{.num_lines = kManyLines, .prefix = "many"};
  Target target{endpoint(), tcp_, settings.connections, {}};
  target.job = user.submit(content("many", kManyLines, 0), {{"key", "many"}});
  wait_for("the first job", [&] { return user.batch(target.job)["status"] == "completed"; });
  expect_exact(user, target.job, kManyLines, 0);
  idle_bytes_ = resident_bytes(daemon_.pid());
  probe_ = std::make_unique<LatencyProbe>(
      endpoint(), target.job,
      [&many, n = std::uint64_t{0}]() mutable { return job_line_id(many, 1 + n++ % kManyLines); });

  probe_->set_phase("nothing");
  std::this_thread::sleep_for(std::chrono::seconds(2));
  probe_->set_phase("clients alone");
  submit_all("alone");
  idle_sockets_ = open_sockets(daemon_.pid());
  if (!settings.together) {
    for (const HostileKind& kind : chosen_kinds()) attack_alone(target, kind);
  }
  attack_together(target);
  probe_->stop();
  for (const auto& [phase, questions] : probe_->latencies()) {
    for (const auto& [question, times] : questions) {
      fmt::print("{:<7} meanwhile: {:<40} p50 {:6.1f} ms, p99 {:7.1f} ms, of {}\n", question, phase,
                 times.at(0.5), times.at(0.99), times.count());
    }
  }

  const std::string replayed = user.submit(replayed_line(), {{"key", kReplayedKey}});
  wait_for("what was replayed", [&] { return user.batch(replayed)["status"] == "completed"; });
  expect_exact(user, replayed, 1, 0);
  end_what_was_begun(user);
  daemon_.terminate();
  EXPECT_EQ(daemon_.wait(), 0);
  EXPECT_LE(daemon_.said().size(), kMaxLogBytes);
  audit_store(data() + "/store");
}

// Sockets for all the connections, and the clients' own.
void allow_files() {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  const auto wanted = static_cast<rlim_t>(settings.connections + 20 * settings.clients + 1'000);
  if (files.rlim_cur < wanted) {
    fmt::print(stderr, "overload_soak: {} open files are allowed, {} are needed (ulimit -Hn)\n",
               files.rlim_cur, wanted);
    std::exit(1);
  }
}

}  // namespace
}  // namespace batchmill::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  CLI::App app("hostile clients against a daemon");
  app.add_option("--clients", batchmill::testing::settings.clients);
  app.add_option("--jobs", batchmill::testing::settings.jobs);
  app.add_option("--connections", batchmill::testing::settings.connections);
  app.add_flag("--together", batchmill::testing::settings.together);
  app.add_option("--only", batchmill::testing::settings.only);
  CLI11_PARSE(app, argc, argv);
  std::signal(SIGPIPE, SIG_IGN);
  batchmill::testing::allow_files();
  return RUN_ALL_TESTS();
}
