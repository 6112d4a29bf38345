// The plan: the pending lines of all jobs, sorted so that neighbours share the longest prefixes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "storage/records.h"

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
  bool at_end = false;  // the range holds nothing behind the last item
};

// How many of the leading ids of the two entries' first prompts are equal, as far as keys tell.
std::uint32_t common_prefix_tokens(const PlanKey& a, const PlanKey& b);

}  // namespace batchmill
