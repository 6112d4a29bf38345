// Takes uploads: feeds each client's bytes to its session, writes the lines in groups while the log
// is being synced, and acks what is durable.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "actors/context.h"
#include "queue/upload_session.h"

namespace batchmill {

// One job's open upload.
struct Upload {
  PeerId peer;  // who gets the answers: the client that opened it last
  std::string owner;  // of the job
  std::uint64_t max_bytes = 0, max_lines = 0;  // what that client may send; 0: no limit
  std::unique_ptr<UploadSession> session;
  std::uint64_t num_requests = 0;  // lines taken that are not blank
  bool too_many_lines = false;  // the client has sent more of them than that
  std::vector<StoredLine> lines;  // gathered, not written yet
  std::uint64_t lines_bytes = 0;  // of their contents
  std::uint64_t offset_bytes = 0;  // of the content behind the last of them
  std::uint64_t written_bytes = 0;  // offset behind the lines that are written, durable or not
  Json end_request;  // the header that asked for the end; null before
  std::int64_t active_s = 0;  // steady clock, of the latest frame
};

struct IntakeState {
  static inline const char* name = "intake";
  std::map<JobId, Upload> uploads;
  bool flush_scheduled = false;
  LogSyncerActor syncer;
  bool syncing = false;  // it has been asked and has not answered
  std::int64_t started_s = 0;  // steady clock; uploads without a client since then count from here
  // … and those that were closed in memory alone from their client's last frame.
  std::map<JobId, std::int64_t> silent_since_s;
};

IntakeActor::behavior_type intake(IntakeActor::stateful_pointer<IntakeState> self,
                                  std::shared_ptr<ActorContext> context);

}  // namespace batchmill
