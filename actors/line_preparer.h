// Turns an uploaded line into work for a device, or into the failure that it ends with: JSON
// checks, chat template, token ids, limits. Stateless and thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "actors/model_catalog.h"
#include "queue/batch_line.h"
#include "storage/records.h"

namespace batchmill {

// What preparing a line needs to know of its job.
struct PreparingJob {
  JobId id;
  std::int32_t priority = 0;
  std::int64_t created_at_s = 0;  // a template's "now"
};

struct PreparedLine {
  std::optional<std::string> custom_id;  // whenever the line could be read that far
  // Exactly one of the two, or none for a blank line.
  std::optional<PlanEntry> entry;
  std::optional<LineResult> failure;
  std::vector<std::string> ignored_fields;
};

class LinePreparer {
 public:
  LinePreparer(const ModelCatalog* catalog, std::int32_t default_max_tokens,
               std::int32_t max_choices, std::uint64_t max_line_bytes);

  PreparedLine prepare(const PreparingJob& job, const StoredLine& line, std::int64_t now_us) const;

  // The failure record of a line.
  static LineResult failure(const LineKey& key, const std::optional<std::string>& custom_id,
                            const std::string& code, const std::string& message,
                            std::int64_t queued_us, std::int64_t now_us);

 private:
  const ModelCatalog* catalog_;
  std::int32_t default_max_tokens_;
  BatchLineLimits limits_;
  std::uint64_t max_line_bytes_;
};

}  // namespace batchmill
