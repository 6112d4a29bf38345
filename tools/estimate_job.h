// What a job file would ask of its models, found by preparing every line as the daemon does: chat
// template, tokens, limits, and the exact trie of all prompts. Memory grows by 8 bytes or so per
// custom_id only: prompts are sorted in a store of its own in a temporary folder, which goes with
// the object. One thread calls it; lines are prepared on several.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "actors/line_preparer.h"
#include "queue/line_splitter.h"
#include "storage/job_store.h"

namespace batchmill {

struct ModelEstimate {
  std::uint64_t lines = 0;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t computed_tokens = 0;  // of the prompts, with every shared prefix computed once
  std::uint64_t max_completion_tokens = 0;  // if every answer uses what it may
};

struct JobEstimate {
  std::uint64_t lines = 0;  // blank ones left out
  std::map<std::string, std::uint64_t> failures;  // by error code
  std::map<std::string, ModelEstimate> models;  // by configured name
  std::set<std::string> ignored_fields;
};

class EstimateJob {
 public:
  // `folder`: where the temporary folder is made. Throws StorageError, std::system_error.
  EstimateJob(const LinePreparer* preparer, const std::string& folder, std::int64_t now_s,
              std::int32_t threads);
  ~EstimateJob();

  void add(const std::vector<InputLine>& lines);
  // Sorts; nothing may be added afterwards.
  JobEstimate finish();

 private:
  struct Part;  // a model's lines, a job of the store

  void add_entry(PlanEntry entry);
  void flush(Part* part);

  const LinePreparer& preparer_;
  std::string folder_;
  std::int64_t now_s_;
  std::int32_t threads_;
  std::unique_ptr<JobStore> store_;
  std::map<std::string, std::unique_ptr<Part>> parts_;  // by model
  std::unordered_set<std::uint64_t> custom_ids_;  // XXH64
  JobEstimate estimate_;
};

}  // namespace batchmill
