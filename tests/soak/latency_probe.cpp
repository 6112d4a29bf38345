#include "tests/soak/latency_probe.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

#include "queue/job_client.h"

namespace batchmill::testing {
namespace {

constexpr std::chrono::seconds kPatience{60};
constexpr std::chrono::milliseconds kPause{5};  // a user's, not a load

}  // namespace

double Latencies::at(double share) const {
  if (ms_.empty()) return 0.0;
  std::vector<double> sorted = ms_;
  std::ranges::sort(sorted);
  return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))];
}

LatencyProbe::LatencyProbe(std::string endpoint, std::string job,
                           std::function<std::string()> some_id)
    : job_(std::move(job)), some_id_(std::move(some_id)), phase_("start") {
  thread_ = std::thread([this, endpoint = std::move(endpoint)] { run(endpoint); });
}

void LatencyProbe::set_phase(const std::string& phase) {
  const std::lock_guard lock(mutex_);
  phase_ = phase;
}

void LatencyProbe::join() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

void LatencyProbe::stop() {
  join();
  if (!error_.empty()) throw std::runtime_error(std::exchange(error_, {}));
}

void LatencyProbe::run(const std::string& endpoint) {
  try {
    JobClient client(endpoint, "probe");
    const auto ask = [&](const std::string& question, Json header) {
      const auto start = std::chrono::steady_clock::now();
      try {
        client.request(std::move(header), kPatience);
      } catch (const RemoteError& error) {
        if (error.code() != "no_such_line") throw;  // durable, not prepared yet
      }
      const std::chrono::duration<double, std::milli> took =
          std::chrono::steady_clock::now() - start;
      const std::lock_guard lock(mutex_);
      latencies_[phase_][question].add(took.count());
    };
    while (!stopping_) {
      ask("status", {{"what", "status"}, {"job", job_}});
      ask("results", {{"what", "results"}, {"job", job_}, {"custom_id", some_id_()}});
      ask("costs", {{"what", "costs"}, {"job", job_}});
      std::this_thread::sleep_for(kPause);
    }
  } catch (const std::exception& error) {
    error_ = error.what();
  }
}

}  // namespace batchmill::testing
