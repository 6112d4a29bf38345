// Asks a daemon the questions that users ask while it is busy, and keeps how long each took. Owns a
// thread and a connection.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace batchmill::testing {

// Milliseconds, any number of them; one thread.
class Latencies {
 public:
  void add(double ms) { ms_.push_back(ms); }
  std::size_t count() const { return ms_.size(); }
  double at(double share) const;  // 0 when there are none

 private:
  std::vector<double> ms_;
};

class LatencyProbe {
 public:
  // Asks about `job` until it is destroyed or stopped; `some_id`: the custom_id of a line that is
  // durable (may be called from the probe's thread).
  LatencyProbe(std::string endpoint, std::string job, std::function<std::string()> some_id);
  ~LatencyProbe() { join(); }
  LatencyProbe(const LatencyProbe&) = delete;
  LatencyProbe& operator=(const LatencyProbe&) = delete;

  // What is asked from now on counts under this name.
  void set_phase(const std::string& phase);
  void stop();  // throws what ended the probe, if anything did

  // Phase → question ("status", "results", "costs") → latencies. After stop().
  const std::map<std::string, std::map<std::string, Latencies>>& latencies() const {
    return latencies_;
  }

 private:
  void run(const std::string& endpoint);
  void join();

  const std::string job_;
  const std::function<std::string()> some_id_;
  std::map<std::string, std::map<std::string, Latencies>> latencies_;
  std::mutex mutex_;
  std::string phase_;
  std::atomic<bool> stopping_{false};
  std::string error_;
  std::thread thread_;
};

}  // namespace batchmill::testing
