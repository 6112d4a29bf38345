#include "tools/estimate_job.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <span>
#include <system_error>
#include <utility>

#include "engine/xxh64.h"

namespace batchmill {
namespace {

constexpr std::size_t kFlushEntries = 512;

std::string make_temporary_folder(const std::string& parent) {
  std::string name = parent + "/batchmill-estimate-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) {
    throw std::system_error(errno, std::generic_category(), parent);
  }
  return name;
}

std::uint64_t hash_of(const std::string& id) { return xxh64(std::as_bytes(std::span(id))); }

StorageOptions scratch_options() {
  StorageOptions options;
  options.sync = false;  // nothing here outlives the process
  options.compression = "lz4";
  return options;
}

}  // namespace

struct EstimateJob::Part {
  JobId job;
  std::uint64_t num_lines = 0;
  std::vector<PlanEntry> entries;
  ModelEstimate estimate;
};

EstimateJob::EstimateJob(const LinePreparer* preparer, const std::string& folder,
                         std::int64_t now_s, std::int32_t threads)
    : preparer_(*preparer),
      folder_(make_temporary_folder(folder)),
      now_s_(now_s),
      threads_(threads) {
  try {
    store_ = JobStore::open(folder_ + "/db", scratch_options(), JobStore::Mode::kReadWrite);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
    throw;
  }
}

EstimateJob::~EstimateJob() {
  store_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void EstimateJob::add(const std::vector<InputLine>& lines) {
  std::vector<PreparedLine> prepared(lines.size());
  const PreparingJob job{{}, 0, now_s_};
  const auto prepare = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const StoredLine line{lines[i].line, lines[i].bytes, lines[i].too_long, 0};
      prepared[i] = preparer_.prepare(job, line, 0);
    }
  };
  const auto parts = static_cast<std::size_t>(threads_);
  std::vector<std::future<void>> others;
  for (std::size_t i = 1; i < parts; ++i) {
    others.push_back(std::async(std::launch::async, prepare, lines.size() * i / parts,
                                lines.size() * (i + 1) / parts));
  }
  prepare(0, lines.size() / parts);
  for (std::future<void>& other : others) other.get();

  for (PreparedLine& line : prepared) {
    if (!line.entry && !line.failure) continue;
    ++estimate_.lines;
    estimate_.ignored_fields.insert(line.ignored_fields.begin(), line.ignored_fields.end());
    if (line.custom_id && !custom_ids_.insert(hash_of(*line.custom_id)).second) {
      ++estimate_.failures["duplicate_custom_id"];
    } else if (line.failure) {
      ++estimate_.failures[line.failure->error_code];
    } else {
      add_entry(std::move(*line.entry));
    }
  }
}

void EstimateJob::add_entry(PlanEntry entry) {
  std::unique_ptr<Part>& part = parts_[entry.model];
  if (part == nullptr) {
    part = std::make_unique<Part>();
    JobRequest request;
    request.name = entry.model;
    part->job = store_->open_job(request, now_s_ * 1'000).job.id;
  }
  ++part->estimate.lines;
  for (const auto& prompt : entry.prompts) {
    part->estimate.prompt_tokens += prompt.size();
    if (!entry.shares_prefixes) part->estimate.computed_tokens += prompt.size();
  }
  part->estimate.max_completion_tokens += std::uint64_t{entry.num_choices} * entry.max_tokens;
  entry.key = {part->job, ++part->num_lines};
  entry.request.clear();
  part->entries.push_back(std::move(entry));
  if (part->entries.size() == kFlushEntries) flush(part.get());
}

void EstimateJob::flush(Part* part) {
  if (part->entries.empty()) return;
  JobStore::Prepared prepared;
  prepared.last_line = part->num_lines;
  prepared.first_line = part->num_lines - part->entries.size() + 1;
  std::vector<StoredLine> lines;
  for (std::uint64_t line = prepared.first_line; line <= prepared.last_line; ++line) {
    lines.push_back({line, "{}", false, 0});
  }
  store_->append_lines(part->job, lines, prepared.last_line, now_s_ * 1'000'000);
  prepared.entries = std::move(part->entries);
  part->entries.clear();
  store_->commit_prepared(part->job, std::move(prepared), now_s_);
}

JobEstimate EstimateJob::finish() {
  for (auto& [model, part] : parts_) {
    flush(part.get());
    store_->seal(part->job, "", now_s_);
    store_->measure_prefixes(part->job);
    part->estimate.computed_tokens += store_->job(part->job)->state.prefix_trie_tokens;
    estimate_.models[model] = part->estimate;
  }
  return std::move(estimate_);
}

}  // namespace batchmill
