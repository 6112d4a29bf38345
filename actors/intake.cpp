#include "actors/intake.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "actors/batch_object.h"
#include "actors/upload_memory.h"
#include "queue/open_request.h"

namespace batchmill {
namespace {

using Context = std::shared_ptr<ActorContext>;
using Self = IntakeActor::stateful_pointer<IntakeState>;
// Uploads, and up to where their lines are written.
using Written = std::vector<std::pair<JobId, std::uint64_t>>;

// How much nicer than other threads the intake's is: where a device computes on all cores, lines
// come in faster than they run at a sixth of a core.
constexpr int kIntakeNice = 7;
// So much is written at once; less when no more is waiting.
constexpr std::uint64_t kGroupBytes = 4 << 20;
// A message of a few MiB may hold millions of (blank) lines, each of which takes some hundred bytes
// of memory until it is durable: then it is taken in pieces.
constexpr std::size_t kMaxGroupLines = 1 << 16;
constexpr std::size_t kPieceBytes = 1 << 17;
constexpr const char* kOpenAgain = "this upload is not open here: open it again to go on";

// The client asked for something that cannot be.
class Refusal : public std::runtime_error {
 public:
  Refusal(std::string code, const std::string& message)
      : std::runtime_error(message), code_(std::move(code)) {}
  const std::string& code() const { return code_; }

 private:
  std::string code_;
};

std::string text_field(const Json& header, const char* name) {
  const auto field = header.find(name);
  if (field == header.end() || field->is_null()) return "";
  if (!field->is_string()) {
    throw Refusal("invalid_request", fmt::format("{} must be a string", name));
  }
  return field->get<std::string>();
}

JobRequest job_request(const Json& header, const Caller& caller) {
  std::string why;
  std::optional<OpenRequest> open = read_open_request(header, &why);
  if (!open) throw Refusal("invalid_request", why);
  return {.name = std::move(open->name),
          .priority = open->priority,
          .strict = open->strict,
          .deadline_s = open->deadline_s,
          .idempotency_key = std::move(open->key),
          .content_hash = std::move(open->content_hash),
          .model_fingerprint = std::move(open->model_fingerprint),
          .metadata = std::move(open->metadata),
          .owner = caller.key};
}

void reply_error(const ActorContext& context, const PeerId& peer, const Json& header,
                 const std::string& code, const std::string& message) {
  Json answer = error_header(header, code, message);
  if (header.contains("job")) answer["job"] = header["job"];
  context.reply(peer, {std::move(answer), "", false});
}

// A client may have so many jobs that have not ended.
void check_job_limit(const JobStore& store, const JobRequest& request, const Caller& caller) {
  if (caller.max_jobs == 0 || store.job_of_key(request.idempotency_key, request.owner)) return;
  std::uint64_t count = 0;
  for (const JobId& id : store.unfinished_jobs()) {
    const std::optional<Job> job = store.job(id);
    if (job && job->request.owner == caller.key) ++count;
  }
  if (count < caller.max_jobs) return;
  throw Refusal("limit_exceeded", fmt::format("this key may have {} unfinished jobs, and it has {}",
                                              caller.max_jobs, count));
}

// Closes an upload in memory alone: its client may open it again, and goes on from what is durable.
std::map<JobId, Upload>::iterator forget(IntakeState& state, ActorContext& context,
                                         std::map<JobId, Upload>::iterator upload) {
  state.silent_since_s[upload->first] = upload->second.active_s;
  context.upload_peers.erase(upload->first);
  return state.uploads.erase(upload);
}

// Above the bound, uploads whose clients have been silent for longest are given up.
void forget_unfinished_lines(IntakeState& state, ActorContext& context, const JobId& current) {
  while (unfinished_bytes(state) > 2 * context.options.queue.total_credit_bytes) {
    const auto oldest = longest_silent(state, current);
    if (oldest == state.uploads.end()) return;
    reply_error(context, oldest->second.peer, {{"job", oldest->first.to_string()}},
                "unknown_upload", kOpenAgain);
    forget(state, context, oldest);
  }
}

void on_open(IntakeState& state, ActorContext& context, const PeerMessage& frame) {
  const auto& [peer, message] = frame;
  const Json& header = message.header;
  const Caller& caller = message.caller;
  const JobRequest request = job_request(header, caller);
  check_job_limit(*context.store, request, caller);
  const JobStore::Opened opened = context.store->open_job(request, context.clock->now_us() / 1000);
  const Job& job = opened.job;
  if (!opened.conflict.empty()) {
    throw Refusal("idempotency_conflict", fmt::format("the key was used before for {} with {}",
                                                      job.id.to_string(), opened.conflict));
  }
  if (job.state.upload != UploadState::kOpen) {
    Json answer = sealed_header(job.id.to_string(), job.state.request_lines);
    answer.update(Json{{"op", "opened"},
                       {"sealed", true},
                       {"offset", job.state.upload_offset_bytes},
                       {"kept", kept_options(job.request, request)}});
    if (header.contains("id")) answer["id"] = header["id"];
    context.reply(peer, {std::move(answer), "", false});
    return;
  }
  if (job.ended()) {
    throw Refusal("job_ended", job.id.to_string() + " was ended while its upload was open");
  }
  // Its client is here, also if the disk is too full for it to go on.
  state.silent_since_s[job.id] = context.clock->steady_s();
  // A new session counts what the store has as durable.
  if (opened.existed && !state.uploads.contains(job.id)) context.store->sync();
  Upload& upload = state.uploads[job.id];
  if (upload.session == nullptr) {
    upload.session = std::make_unique<UploadSession>(
        job.id.to_string(),
        UploadLimits{context.options.queue.max_line_bytes,
                     credit_of(state, upload, context.options.queue)},
        job.state.total_lines, job.state.upload_offset_bytes);
    upload.offset_bytes = upload.written_bytes = job.state.upload_offset_bytes;
    upload.num_requests = job.state.request_lines;
  }
  upload.peer = peer;
  upload.owner = job.request.owner;
  upload.max_bytes = caller.max_bytes;
  upload.max_lines = caller.max_lines;
  context.upload_peers[job.id] = peer;
  upload.active_s = context.clock->steady_s();
  upload.end_request = nullptr;
  Json answer = upload.session->opened(header);
  answer["kept"] = kept_options(job.request, request);
  context.reply(peer, {std::move(answer), "", false});
}

// The upload that a frame belongs to. After a restart there is none until the client opens it
// again.
Upload& upload_of(IntakeState& state, const WireMessage& message, JobId* id) {
  const std::optional<JobId> parsed = JobId::parse(text_field(message.header, "job"));
  const auto it = parsed ? state.uploads.find(*parsed) : state.uploads.end();
  if (it == state.uploads.end() || !message.caller.may_see(it->second.owner)) {
    throw Refusal("unknown_upload", kOpenAgain);
  }
  *id = it->first;
  return it->second;
}

void take_step(Upload& upload, UploadSession::Step step, const ActorContext& context) {
  for (InputLine& line : step.lines) {
    StoredLine stored{line.line, std::move(line.bytes), line.too_long};
    const bool is_request = !stored.is_blank();
    upload.too_many_lines |=
        is_request && upload.max_lines != 0 && upload.num_requests == upload.max_lines;
    if (upload.too_many_lines) break;
    if (is_request) ++upload.num_requests;
    upload.offset_bytes = line.end_offset_bytes;
    // Blank lines in a row are one record, however many.
    if (!upload.lines.empty() && !is_request && upload.lines.back().is_blank()) {
      StoredLine& run = upload.lines.back();
      upload.lines_bytes -= run.bytes.size();
      run.bytes.clear();
      run.line = line.line;
      ++run.num_lines;
      continue;
    }
    upload.lines_bytes += stored.bytes.size();
    upload.lines.push_back(std::move(stored));
  }
  if (step.reply) context.reply(upload.peer, {std::move(*step.reply), "", false});
}

// False when the job has ended, maybe a moment ago.
bool write_lines(const JobId& id, Upload& upload, const ActorContext& context) {
  if (upload.lines.empty()) return true;
  if (!context.store->write_lines(id, upload.lines, upload.offset_bytes, context.clock->now_us())) {
    return false;
  }
  upload.lines.clear();
  upload.lines_bytes = 0;
  upload.written_bytes = upload.offset_bytes;
  return true;
}

void refuse_ended(const JobId& id, const Upload& upload, const ActorContext& context) {
  reply_error(context, upload.peer, {{"job", id.to_string()}}, "job_ended",
              "the job has ended: nothing more of it is taken");
}

// Up to this offset of the content the lines are durable.
void ack(const JobId& id, Upload& upload, std::uint64_t offset_bytes, const ActorContext& context) {
  if (offset_bytes <= upload.session->durable_bytes()) return;
  send_to<PreparerActor>(context.directory, lines_atom::value, id);
  context.reply(upload.peer, {upload.session->durable(offset_bytes), "", false});
}

// The upload is whole and written: seal the job, which makes all of it durable, and say so.
void seal(const JobId& id, Upload& upload, const ActorContext& context) {
  JobStore& store = *context.store;
  const bool kept = store.seal(id, upload.session->content_hash(), context.clock->now_s());
  ack(id, upload, upload.written_bytes, context);
  if (!kept) {
    reply_error(context, upload.peer, upload.end_request, "empty_file",
                "the file is empty: it holds no line");
    return;
  }
  const std::optional<Job> job = store.job(id);
  if (job && job->state.upload == UploadState::kOpen) return refuse_ended(id, upload, context);
  Json answer = sealed_header(id.to_string(), job ? job->state.request_lines : 0);
  spdlog::info("{} is taken in: {} lines", id.to_string(), job ? job->state.request_lines : 0);
  if (upload.end_request.contains("id")) answer["id"] = upload.end_request["id"];
  context.reply(upload.peer, {std::move(answer), "", false});
  send_to<PreparerActor>(context.directory, lines_atom::value, id);
}

void refuse_full(const JobId& id, const Upload& upload, const std::string& why,
                 const ActorContext& context) {
  spdlog::error("an upload waits for disk space: {}", why);
  context.options.on_storage_full(why);
  reply_error(context, upload.peer, {{"job", id.to_string()}}, "storage_full", why);
}

// Writes what has gathered, and ends the uploads that are whole.
void flush(IntakeState& state, ActorContext& context) {
  for (auto it = state.uploads.begin(); it != state.uploads.end();) {
    Upload& upload = it->second;
    bool over = false;
    bool full = false;
    if (upload.lines.empty() && upload.end_request.is_null()) {
      ++it;
      continue;
    }
    try {
      const std::optional<Job> job = context.store->job(it->first);
      if (!job || job->ended() || !write_lines(it->first, upload, context)) {
        refuse_ended(it->first, upload, context);
        over = true;
      } else {
        over = !upload.end_request.is_null();
        if (over) seal(it->first, upload, context);
      }
    } catch (const StorageError& error) {
      if (error.kind() != StorageError::Kind::kFull) throw;
      refuse_full(it->first, upload, error.what(), context);
      full = true;
    }
    if (over) context.upload_peers.erase(it->first);
    it = full ? forget(state, context, it) : over ? state.uploads.erase(it) : std::next(it);
  }
}

// What was written is durable, or cannot be: `why_full` is not empty.
void on_synced(IntakeState& state, ActorContext& context, const Written& written,
               const std::string& why_full) {
  for (const auto& [id, offset_bytes] : written) {
    const auto it = state.uploads.find(id);
    if (it == state.uploads.end()) continue;  // it has ended, and said so
    Upload& upload = it->second;
    if (why_full.empty()) {
      upload.session->set_credit(credit_of(state, upload, context.options.queue));
      ack(id, upload, offset_bytes, context);
    } else {
      refuse_full(id, upload, why_full, context);
      forget(state, context, it);
    }
  }
}

// One sync at a time; what is written meanwhile is in the next one.
void start_sync(Self self, const Context& context) {
  IntakeState& state = self->state;
  if (state.syncing) return;
  Written written;
  for (const auto& [id, upload] : state.uploads) {
    if (upload.written_bytes > upload.session->durable_bytes()) {
      written.emplace_back(id, upload.written_bytes);
    }
  }
  if (written.empty()) return;
  state.syncing = true;
  self->request(state.syncer, caf::infinite, sync_atom::value)
      .then(
          [=, written = std::move(written)](const std::string& why_full) {
            self->state.syncing = false;
            on_synced(self->state, *context, written, why_full);
            start_sync(self, context);
          },
          [=](const caf::error& error) { self->quit(error); });
}

LogSyncerActor::behavior_type log_syncer(LogSyncerActor::pointer self, Context context) {
  end_on_exceptions(self);
  return {[=](sync_atom) -> std::string {
    try {
      context->store->sync();
    } catch (const StorageError& error) {
      if (error.kind() != StorageError::Kind::kFull) throw;
      return error.what();
    }
    return "";
  }};
}

// No more lines will come: those so far run, then the job ends as `code` says.
void cut_upload(IntakeState& state, ActorContext& context, const JobId& id, const std::string& code,
                const std::string& message) {
  Upload& upload = state.uploads.at(id);
  write_lines(id, upload, context);
  context.store->truncate(id, code, message, context.clock->now_s());
  state.uploads.erase(id);
  context.upload_peers.erase(id);
  send_to<PreparerActor>(context.directory, lines_atom::value, id);
}

void on_abort(IntakeState& state, ActorContext& context, const PeerMessage& frame) {
  const Json& header = frame.message.header;
  JobId id;
  upload_of(state, frame.message, &id);
  std::string code = text_field(header, "code");
  if (code.empty()) code = "truncated_input";
  cut_upload(state, context, id, shortened(code), shortened(text_field(header, "message")));
  Json answer = {{"op", "aborted"}, {"job", id.to_string()}};
  if (header.contains("id")) answer["id"] = header["id"];
  context.reply(frame.peer, {std::move(answer), "", false});
}

// Throws when the job has more than its owner may send; what is within the limit is kept.
[[noreturn]] void refuse_excess(IntakeState& state, ActorContext& context, const JobId& id,
                                const std::string& limit) {
  const std::string message = "a job of this key may have " + limit + ", and this one has more";
  cut_upload(state, context, id, "limit_exceeded", message);
  const std::optional<Job> job = context.store->job(id);
  const std::string kept =
      !job || job->state.request_lines == 0
          ? "nothing of it is kept"
          : fmt::format(
                "its first {} lines are kept and run as {}, which ends failed then "
                "(`batchmill cancel {}` ends it at once)",
                job->state.request_lines, id.to_string(), id.to_string());
  throw Refusal("limit_exceeded", message + "; " + kept);
}

void on_data(const JobId& id, Upload& upload, const Json& header, std::string_view payload,
             const ActorContext& context) {
  std::size_t num_lines = 0;
  for (auto end = payload.find('\n'); end != payload.npos; end = payload.find('\n', end + 1)) {
    ++num_lines;
  }
  if (upload.lines.size() + num_lines <= kMaxGroupLines) {
    return take_step(upload, upload.session->data(header, payload), context);
  }
  Json piece_header = header;
  while (!payload.empty()) {
    const std::string_view piece = payload.substr(0, kPieceBytes);
    payload.remove_prefix(piece.size());
    UploadSession::Step step = upload.session->data(piece_header, piece);
    const bool refused = step.reply && step.reply->value("op", "") == "error";
    take_step(upload, std::move(step), context);
    if (refused) return;
    if (upload.lines.size() >= kMaxGroupLines && !write_lines(id, upload, context)) return;
    piece_header["offset"] = piece_header["offset"].get<std::uint64_t>() + piece.size();
  }
}

void on_frame(Self self, const Context& context, const PeerMessage& frame) {
  IntakeState& state = self->state;
  const Json& header = frame.message.header;
  const std::string op = header.value("op", "");
  if (op == "open") return on_open(state, *context, frame);
  if (op == "abort") return on_abort(state, *context, frame);
  JobId id;
  Upload& upload = upload_of(state, frame.message, &id);
  upload.peer = frame.peer;
  upload.active_s = context->clock->steady_s();
  upload.session->set_credit(credit_of(state, upload, context->options.queue));
  if (op == "data") {
    const std::uint64_t reach_bytes =
        upload.session->reach_bytes(header, frame.message.payload.size());
    if (upload.max_bytes != 0 && reach_bytes > upload.max_bytes) {
      refuse_excess(state, *context, id, fmt::format("{} bytes", upload.max_bytes));
    }
    on_data(id, upload, header, frame.message.payload, *context);
    forget_unfinished_lines(state, *context, id);
  } else {
    UploadSession::Step step = upload.session->end(header);
    if (step.ended) upload.end_request = header;
    take_step(upload, std::move(step), *context);
  }
  if (upload.too_many_lines) {
    refuse_excess(state, *context, id, fmt::format("{} lines", upload.max_lines));
  }
  if (upload.lines_bytes >= kGroupBytes) {
    flush(state, *context);
  } else if ((!upload.lines.empty() || !upload.end_request.is_null()) && !state.flush_scheduled) {
    // Behind the frames that wait: what they bring is written with it.
    state.flush_scheduled = true;
    self->send(self, flush_atom::value);
  }
  start_sync(self, context);
}

// Uploads whose client has been silent for too long end; what was acked runs.
void close_idle(IntakeState& state, ActorContext& context) {
  const std::int64_t now_s = context.clock->steady_s();
  const std::int64_t timeout_s = context.options.queue.upload_timeout_s;
  const auto takes_no_more = [&](const auto& silent) {
    const std::optional<Job> job = context.store->job(silent.first);
    return !job || job->ended() || job->state.upload != UploadState::kOpen;
  };
  std::erase_if(state.silent_since_s, takes_no_more);
  for (const JobId& id : context.store->unfinished_jobs()) {
    const std::optional<Job> job = context.store->job(id);
    if (!job || job->state.upload != UploadState::kOpen) continue;
    const auto it = state.uploads.find(id);
    const auto silent = state.silent_since_s.find(id);
    const std::int64_t active_s = it != state.uploads.end()              ? it->second.active_s
                                  : silent != state.silent_since_s.end() ? silent->second
                                                                         : state.started_s;
    if (now_s - active_s < timeout_s) continue;
    spdlog::warn("the upload of {} was idle for {} s and is closed", id.to_string(), timeout_s);
    context.store->truncate(
        id, "truncated_input",
        fmt::format("the upload was idle for {} s (queue.upload_timeout_s)", timeout_s),
        context.clock->now_s());
    if (it != state.uploads.end()) state.uploads.erase(it);
    context.upload_peers.erase(id);
    send_to<PreparerActor>(context.directory, lines_atom::value, id);
  }
}

}  // namespace

IntakeActor::behavior_type intake(IntakeActor::stateful_pointer<IntakeState> self,
                                  std::shared_ptr<ActorContext> context) {
  end_on_exceptions(self);
  self->state.started_s = context->clock->steady_s();
  self->state.syncer = self->spawn<caf::linked + caf::detached>(log_syncer, context);
  // Behind the spawn, whose thread would be as nice. On Linux, of this thread alone.
  [[maybe_unused]] const int nice_now = ::nice(kIntakeNice);
  // Clients whose uploads an intake before this one had open: they go on from what was acked.
  for (const auto& [id, peer] : std::exchange(context->upload_peers, {})) {
    reply_error(*context, peer, {{"job", id.to_string()}}, "unknown_upload", kOpenAgain);
  }
  return {
      [=](frame_atom, const PeerMessage& frame) {
        const Json& header = frame.message.header;
        try {
          on_frame(self, context, frame);
        } catch (const Refusal& refusal) {
          reply_error(*context, frame.peer, header, refusal.code(), refusal.what());
        } catch (const StorageError& error) {
          if (!context->store->why_lost().empty()) throw;  // the client waits for another daemon
          const bool full = error.kind() == StorageError::Kind::kFull;
          const char* const code = full ? "storage_full" : "storage_error";
          reply_error(*context, frame.peer, header, code, error.what());
          if (!full) throw;
          context->options.on_storage_full(error.what());
        }
      },
      [=](tick_atom) {
        try {
          close_idle(self->state, *context);
        } catch (const StorageError& error) {
          if (error.kind() != StorageError::Kind::kFull) throw;
          spdlog::error("idle uploads stay open until the disk has space: {}", error.what());
        }
      },
      [=](flush_atom) {
        self->state.flush_scheduled = false;
        flush(self->state, *context);
        start_sync(self, context);
      },
  };
}

}  // namespace batchmill
