#include "actors/preparer.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "actors/batch_object.h"

namespace batchmill {
namespace {

constexpr std::size_t kFirstChunkLines = 8;
constexpr std::size_t kMaxChunkLines = 512;
constexpr std::size_t kMaxChunkBytes = 8 << 20;
constexpr std::size_t kMaxErrors = 100;  // kept of a strict job
constexpr std::size_t kMaxWarnings = 20;  // that the store keeps of a job
constexpr std::chrono::seconds kRetryAfter{1};
// How much nicer than other threads those that prepare are: where a device computes on all cores,
// one late thread of it holds up the others, and lines are prepared thousands of times as fast as
// they run. Not 19, so that a lock held by a thread that has to wait is soon free.
constexpr int kPreparingNice = 15;

// A job that arrives while others run has its first minute of work in the short lane.
constexpr double kShortLaneSeconds = 60.0;
constexpr double kUnmeasuredTokensPerSecond = 500.0;

using Self = PreparerActor::stateful_pointer<PreparerState>;
using Context = std::shared_ptr<ActorContext>;

PreparingWorkerActor::behavior_type preparing_worker(
    PreparingWorkerActor::pointer, Context context,
    std::shared_ptr<const LinePreparer> line_preparer) {
  // On Linux, of this thread alone. Where it is refused, preparing only takes more from a device.
  [[maybe_unused]] const int nice_now = ::nice(kPreparingNice);
  return {[=](prepare_atom, const ChunkPart& part) {
    PreparedPart prepared;
    for (std::size_t i = part.begin; i < part.end; ++i) {
      prepared.lines.push_back(
          line_preparer->prepare(part.job, (*part.lines)[i], context->clock->now_us()));
    }
    return prepared;
  }};
}

// A chunk on its way through the workers.
struct Chunk {
  Job job;
  bool checking = false;  // first pass over a strict job
  std::shared_ptr<const std::vector<StoredLine>> lines;
  std::vector<PreparedPart> parts;
  std::size_t num_missing = 0;
};

double short_lane_budget(const ActorContext& context, const Job& job) {
  for (const JobId& other : context.store->unfinished_jobs()) {
    if (other < job.id) {
      const double rate = context.live->tokens_per_second(context.clock->steady_s());
      return kShortLaneSeconds * (rate > 0.0 ? rate : kUnmeasuredTokensPerSecond);
    }
  }
  return 0.0;
}

JobProgress& progress_of(PreparerState& state, const ActorContext& context, const Job& job) {
  const auto [it, fresh] = state.progress.try_emplace(job.id);
  if (fresh) {
    it->second.chunk_lines = kFirstChunkLines;
    if (job.state.prepared_through == 0) {
      it->second.short_lane_tokens = short_lane_budget(context, job);
    }
    it->second.warned.insert(job.state.warnings.begin(), job.state.warnings.end());
  }
  return it->second;
}

// A line whose custom_id an earlier line owns fails, whatever else is wrong with it.
void make_duplicate(PreparedLine* line, const LineKey& key, std::uint64_t owner,
                    std::int64_t queued_us, std::int64_t now_us) {
  line->entry.reset();
  line->failure = LinePreparer::failure(
      key, line->custom_id, "duplicate_custom_id",
      fmt::format("custom_id: line {} has the same custom_id", owner), queued_us, now_us);
}

// Fails the lines of a chunk whose custom_id an earlier line owns. Returns the ids that lines of
// the chunk own.
std::vector<std::pair<std::string, std::uint64_t>> find_duplicates(const Context& context,
                                                                   Chunk& chunk) {
  struct Named {
    PreparedLine* line;
    LineKey key;
    std::int64_t queued_us;
  };
  std::vector<Named> lines;
  std::vector<std::string> ids;
  auto stored = chunk.lines->begin();
  for (PreparedPart& part : chunk.parts) {
    for (PreparedLine& line : part.lines) {
      const StoredLine& from = *stored++;
      if (!line.custom_id) continue;
      lines.push_back({&line, {chunk.job.id, from.line}, from.queued_us});
      ids.push_back(*line.custom_id);
    }
  }
  const std::vector<std::uint64_t> owners = context->store->find_owners(chunk.job.id, ids);
  std::map<std::string, std::uint64_t> new_owners;
  std::vector<std::pair<std::string, std::uint64_t>> owned;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto& [line, key, queued_us] = lines[i];
    std::uint64_t owner = owners[i];
    if (owner == 0) owner = new_owners.emplace(ids[i], key.line).first->second;
    if (owner == key.line) {
      owned.emplace_back(std::move(ids[i]), key.line);
    } else {
      make_duplicate(line, key, owner, queued_us, context->clock->now_us());
    }
  }
  return owned;
}

void check_chunk(PreparerState& state, const Context& context, Chunk& chunk) {
  JobProgress& progress = progress_of(state, *context, chunk.job);
  context->store->claim_ids(chunk.job.id, find_duplicates(context, chunk));
  auto stored = chunk.lines->begin();
  for (const PreparedPart& part : chunk.parts) {
    for (const PreparedLine& line : part.lines) {
      progress.checked_through = (stored++)->line;
      if (!line.failure || progress.errors.size() == kMaxErrors) continue;
      const Json record = Json::parse(line.failure->output);
      progress.errors.push_back({line.failure->error_code,
                                 shortened(record["error"]["message"].get<std::string>()),
                                 progress.checked_through});
    }
  }
}

void add_line(JobProgress& progress, PreparedLine line, JobStore::Prepared* prepared) {
  for (std::string& field : line.ignored_fields) {
    if (progress.warned.size() >= kMaxWarnings) break;
    std::string warning = fmt::format("unknown field ignored: {}", field);
    if (progress.warned.insert(warning).second) prepared->warnings.push_back(std::move(warning));
  }
  if (line.failure) prepared->failures.push_back(std::move(*line.failure));
  if (!line.entry) return;
  if (progress.short_lane_tokens > 0.0) {
    line.entry->short_lane = true;
    for (const auto& prompt : line.entry->prompts) {
      progress.short_lane_tokens -= static_cast<double>(prompt.size());
    }
    progress.short_lane_tokens -=
        static_cast<double>(line.entry->num_choices) * line.entry->max_tokens;
  }
  prepared->entries.push_back(std::move(*line.entry));
}

void commit_chunk(PreparerState& state, const Context& context, Chunk& chunk) {
  JobStore& store = *context->store;
  // Taken over when it is written: a full disk has the chunk prepared once more.
  JobProgress progress = progress_of(state, *context, chunk.job);
  JobStore::Prepared prepared;
  prepared.first_line = chunk.lines->front().first_line();
  prepared.last_line = chunk.lines->back().line;
  prepared.custom_ids = find_duplicates(context, chunk);
  for (PreparedPart& part : chunk.parts) {
    for (PreparedLine& line : part.lines) add_line(progress, std::move(line), &prepared);
  }
  const bool planned = !prepared.entries.empty();
  store.commit_prepared(chunk.job.id, std::move(prepared), context->clock->now_s());
  state.progress[chunk.job.id] = std::move(progress);
  if (planned) send_to<DispatcherActor>(context->directory, plan_atom::value);
}

// The job's lines have all been read once more or for good: what now? True when it is done with.
bool end_of_lines(PreparerState& state, const Context& context, const Job& job, bool checking) {
  if (job.state.upload == UploadState::kOpen) return true;  // its next lines will be announced
  JobStore& store = *context->store;
  if (!checking) {
    store.measure_prefixes(job.id);
    store.end_finished_jobs(context->clock->now_s());
    state.progress.erase(job.id);
    return true;
  }
  JobProgress& progress = progress_of(state, *context, job);
  if (progress.errors.empty()) {
    store.set_strict_checked(job.id);
    return false;
  }
  spdlog::info("{} is strict and has bad lines: nothing of it runs", job.id.to_string());
  store.fail_job(job.id, "invalid_request", progress.errors, context->clock->now_s());
  state.progress.erase(job.id);
  return true;
}

// The next chunk of the job, absent when there is none; `*finished`: nothing more is to be done
// now.
std::optional<Chunk> read_chunk(PreparerState& state, const Context& context, const JobId& id,
                                bool* finished) {
  *finished = true;
  const std::optional<Job> job = context->store->job(id);
  if (!job || job->ended()) {
    state.progress.erase(id);
    return std::nullopt;
  }
  JobProgress& progress = progress_of(state, *context, *job);
  Chunk chunk;
  chunk.job = *job;
  chunk.checking = job->request.strict && !job->state.strict_checked;
  const std::uint64_t through =
      chunk.checking ? progress.checked_through : job->state.prepared_through;
  auto lines = std::make_shared<std::vector<StoredLine>>(
      context->store->read_lines(id, through + 1, progress.chunk_lines, kMaxChunkBytes));
  progress.chunk_lines = std::min(progress.chunk_lines * 2, kMaxChunkLines);
  if (lines->empty()) {
    *finished = end_of_lines(state, context, *job, chunk.checking);
    return std::nullopt;
  }
  *finished = false;
  chunk.lines = std::move(lines);
  return chunk;
}

void wait_for_disk_space(const ActorContext& context, const StorageError& error) {
  spdlog::error("preparing waits for disk space: {}", error.what());
  context.options.on_storage_full(error.what());
}

// The store refused a write of the job in turn. A full disk is given time; other failures end the
// actor.
void try_later(Self self, const ActorContext& context, const StorageError& error) {
  // An upload that turned out to hold no request takes its job away.
  if (error.kind() == StorageError::Kind::kMissing) return self->send(self, prepare_atom::value);
  if (error.kind() != StorageError::Kind::kFull) throw error;
  wait_for_disk_space(context, error);
  self->delayed_send(self, kRetryAfter, prepare_atom::value);
}

void finish_chunk(Self self, const Context& context, Chunk& chunk) {
  self->state.busy = false;
  try {
    if (chunk.checking) {
      check_chunk(self->state, context, chunk);
    } else {
      commit_chunk(self->state, context, chunk);
    }
    self->send(self, prepare_atom::value);
  } catch (const StorageError& error) {
    try_later(self, *context, error);
  }
}

void start_chunk(Self self, const Context& context, Chunk ready) {
  self->state.busy = true;
  const auto chunk = std::make_shared<Chunk>(std::move(ready));
  const std::size_t size = chunk->lines->size();
  const std::size_t num_parts = std::min(self->state.workers.size(), size);
  chunk->parts.resize(num_parts);
  chunk->num_missing = num_parts;
  for (std::size_t i = 0; i < num_parts; ++i) {
    ChunkPart part;
    part.job = {chunk->job.id, chunk->job.request.priority, chunk->job.state.created_at_s};
    part.lines = chunk->lines;
    part.begin = size * i / num_parts;
    part.end = size * (i + 1) / num_parts;
    self->request(self->state.workers[i], caf::infinite, prepare_atom::value, std::move(part))
        .then(
            [=](PreparedPart& prepared) {
              chunk->parts[i] = std::move(prepared);
              if (--chunk->num_missing == 0) finish_chunk(self, context, *chunk);
            },
            [=](const caf::error& error) { self->quit(error); });
  }
}

}  // namespace

PreparerActor::behavior_type preparer(PreparerActor::stateful_pointer<PreparerState> self,
                                      std::shared_ptr<ActorContext> context,
                                      std::shared_ptr<const LinePreparer> line_preparer) {
  end_on_exceptions(self);
  for (std::int32_t i = 0; i < std::max(context->options.preparer_threads, 1); ++i) {
    self->state.workers.push_back(
        self->spawn<caf::linked + caf::detached>(preparing_worker, context, line_preparer));
  }
  self->state.refresh = std::make_unique<PlanRefresh>(context, line_preparer);
  self->send(self, refresh_atom::value);
  for (const JobId& job : context->store->unfinished_jobs()) self->state.queue.push_back(job);
  self->send(self, prepare_atom::value);
  return {
      [=](lines_atom, const JobId& job) {
        auto& queue = self->state.queue;
        if (std::find(queue.begin(), queue.end(), job) == queue.end()) queue.push_back(job);
        if (!self->state.busy) self->send(self, prepare_atom::value);
      },
      [=](prepare_atom) {
        auto& queue = self->state.queue;
        while (!self->state.busy && !queue.empty()) {
          const JobId job = queue.front();
          queue.pop_front();
          bool finished = true;
          std::optional<Chunk> chunk;
          try {
            chunk = read_chunk(self->state, context, job, &finished);
          } catch (const StorageError& error) {
            queue.push_back(job);
            return try_later(self, *context, error);
          }
          if (!finished) queue.push_back(job);
          if (chunk) start_chunk(self, context, std::move(*chunk));
        }
      },
      [=](refresh_atom) {
        try {
          if (self->state.refresh->step()) {
            self->send(self, refresh_atom::value);
          } else {
            self->state.refresh.reset();
          }
        } catch (const StorageError& error) {
          if (error.kind() != StorageError::Kind::kFull) throw;
          wait_for_disk_space(*context, error);
          self->delayed_send(self, kRetryAfter, refresh_atom::value);
        }
      },
  };
}

}  // namespace batchmill
