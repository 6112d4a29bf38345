// The plan: the pending lines of all jobs, sorted so that neighbours share the longest prefixes.
// Values and pure functions; JobStore reads and writes the plan.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "storage/line.h"

namespace batchmill {

// An entry's whole key: level · lane · fingerprint · prompt ids · job · line (storage/README.md).
using PlanKey = std::string;

// What shares a cursor: a priority level, a lane and a model.
struct PlanLevel {
  std::int32_t priority = 0;
  bool short_lane = false;
  std::string fingerprint;
  PlanKey first;  // first possible key
  PlanKey limit;  // behind the last possible key
  std::uint64_t approximate_bytes = 0;
  std::uint64_t newest_serial = 0;  // no entry of the level has a larger one
  bool operator==(const PlanLevel&) const = default;
};

struct PlanRange {
  PlanKey begin;  // inclusive
  PlanKey end;  // exclusive; empty: no end
};

struct PlanItem {
  PlanKey key;
  LineKey line;
  std::uint64_t serial = 0;  // grows with every entry ever written: tells what a sweep has frozen
  std::string model;
  std::uint32_t num_prompt_tokens = 0;  // over all prompts of the line
  std::uint32_t num_choices = 0;  // prompts × n
  std::uint32_t max_tokens = 0;  // per choice
};

struct PlanPage {
  std::vector<PlanItem> items;
  PlanKey next;  // where to go on (entries of ended jobs are left out, so a page may be empty)
  bool at_end = false;  // the range holds nothing from `next` on
};

// The key of an entry. Throws std::invalid_argument on a priority, fingerprint or token id that a
// key cannot hold, or without a prompt.
PlanKey make_plan_key(const PlanEntry& entry);

// What a key says by itself. Absent when the bytes are no plan key.
struct PlanKeyParts {
  std::int32_t priority = 0;
  bool short_lane = false;
  std::string fingerprint;  // 16 hex digits
  std::vector<std::int32_t> ids;  // the first prompt's first 1,024 ids at most
  LineKey line;
};
std::optional<PlanKeyParts> parse_plan_key(std::string_view key);

// The level that a key belongs to, with its bounds; what only a store knows is 0.
std::optional<PlanLevel> plan_level_of(std::string_view key);

// How many of the leading ids of the two entries' first prompts are equal, as far as keys tell: ids
// one by one up to 1,024, then in steps of 64. 0 when the fingerprints differ.
std::uint32_t common_prefix_tokens(const PlanKey& a, const PlanKey& b);

// job · fingerprint · ids of `prompt` (all of them, 3 bytes each) · zero · line · prompt number:
// the key under which a prompt waits for the job's prefixes to be measured. Same order as the plan,
// exact to the last id.
std::string make_prompt_key(const LineKey& line, std::string_view fingerprint,
                            std::span<const std::int32_t> prompt, std::uint32_t number);

}  // namespace batchmill
