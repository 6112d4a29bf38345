// What only the running process knows: lines in flight and recent rates, per job. Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "actors/queries.h"
#include "storage/records.h"

namespace batchmill {

class LiveStats {
 public:
  // Rates are means over the last kWindow seconds.
  static constexpr std::int64_t kWindow = 30;

  void lines_started(const JobId& job, std::uint64_t lines);
  void lines_returned(const JobId& job, std::uint64_t lines);  // finished or put back
  // Tokens that a step computed for a job at steady-clock second `now_s`.
  void tokens_computed(const JobId& job, std::uint64_t tokens, std::int64_t now_s);
  void line_finished(const JobId& job, std::int64_t now_s);
  // Something that this start found out about a job; each text once.
  void warn(const JobId& job, const std::string& warning);
  // Forgets the jobs that are not among `unfinished` (sorted), however they ended.
  void keep_only(const std::vector<JobId>& unfinished);
  void forget_running();  // the devices are gone with all they had

  LiveJob job(const JobId& job, std::int64_t now_s) const;
  // Tokens per second over all jobs.
  double tokens_per_second(std::int64_t now_s) const;

 private:
  struct Rate {
    std::array<std::uint64_t, kWindow> counts{};
    std::int64_t last_s = 0;
    std::int64_t first_s = -1;

    void add(std::uint64_t count, std::int64_t now_s);
    void advance(std::int64_t now_s);
    double per_second(std::int64_t now_s) const;
  };
  struct Entry {
    std::uint64_t running = 0;
    std::set<std::string> warnings;
    Rate tokens;
    Rate lines;
  };

  mutable std::mutex mutex_;
  std::map<JobId, Entry> jobs_;
  Rate all_tokens_;
};

}  // namespace batchmill
