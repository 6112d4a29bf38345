// Answers what users ask about jobs, from the store alone: the running daemon and a tool that reads
// a store nobody holds give the same answers. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "queue/wire.h"
#include "storage/job_store.h"

namespace batchmill {

// What only a running daemon knows about a job.
struct LiveJob {
  std::uint64_t lines_running = 0;
  double tokens_per_second = 0.0;  // computed, of the last 30 s
  double lines_per_second = 0.0;
  std::vector<std::string> warnings;
};
using LiveJobs = std::function<LiveJob(const JobId&)>;

class Queries {
 public:
  // `live` may be empty: no daemon runs.
  Queries(const JobStore* store, LiveJobs live);

  // Answers one {"op":"request","what":…} header with its response header and payload:
  //   status   {job}                      → {batch: batch object}
  //   list     {status?, after?, limit?}  → {batches: [batch object, …], at_end}: as many as a
  //   header
  //            has room for; go on `after` the last one
  //   list     {key}                      → the same, of the job with this idempotency key
  //   results  {job, from?, order?: "input"|"completed", custom_id?, side?:
  //   "output"|"errors"|"all",
  //             max_bytes?, failed_input?: true}
  //            → {next, at_end, ended, outputs, errors} + payload: whole JSON lines; the failed
  //            input is in the order of the file
  //   costs    {job?, by?: "job"|"line"|"model"|"day", from?}
  //            → {next, at_end} + payload: whole JSON lines, one ledger object each
  //   explain  {job, custom_id, from?}    → {line: {…}}, or {line: null, next}
  //   (A custom_id is searched for in parts where no index has it, as line_search.h says: an answer
  //   with neither line nor end says where to go on.)
  // (devices, which only a daemon knows, is control's.)
  // Failures are {"op":"error","code":…,"message":…}: no_such_job, no_such_line, invalid_request.
  // A caller who is no admin sees its own jobs; others are no_such_job to it.
  WireMessage answer(const Json& request, const Caller& caller = {}) const;

  Json batch_object(const Job& job) const;

 private:
  const JobStore* store_;
  LiveJobs live_;
};

}  // namespace batchmill
