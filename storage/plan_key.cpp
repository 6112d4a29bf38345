#include <xxhash.h>

#include <algorithm>
#include <stdexcept>

#include "storage/keys.h"
#include "storage/plan.h"

namespace batchmill {
namespace {

constexpr std::int32_t kMaxPriority = 10;
constexpr std::int32_t kMinPriority = -10;
constexpr std::size_t kLevelBytes = 2 + 8;  // level, lane, fingerprint
constexpr std::size_t kIdBytes = 3;
constexpr std::size_t kHashBytes = 2;
constexpr std::size_t kMaxKeyIds = 1024;
constexpr std::size_t kHashedIds = 64;  // ids per hash behind the first 1,024
constexpr std::int32_t kMaxId = (1 << 24) - 2;

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

void put_fingerprint(std::string& out, std::string_view fingerprint) {
  if (fingerprint.size() != 16) {
    throw std::invalid_argument("a model fingerprint has 16 hex digits, not \"" +
                                std::string(fingerprint) + "\"");
  }
  for (std::size_t i = 0; i < fingerprint.size(); i += 2) {
    const int high = hex_digit(fingerprint[i]);
    const int low = hex_digit(fingerprint[i + 1]);
    if (high < 0 || low < 0) {
      throw std::invalid_argument("a model fingerprint has 16 hex digits, not \"" +
                                  std::string(fingerprint) + "\"");
    }
    out += static_cast<char>(high << 4 | low);
  }
}

void put_id(std::string& out, std::int32_t id) {
  if (id < 0 || id > kMaxId) {
    throw std::invalid_argument("token id " + std::to_string(id) + " does not fit a plan key");
  }
  keys::put_u24(out, static_cast<std::uint32_t>(id) + 1);
}

// Never 0, which ends the hashes.
std::uint16_t hash_ids(std::span<const std::int32_t> ids) {
  std::string bytes;
  bytes.reserve(ids.size() * kIdBytes);
  for (std::int32_t id : ids) put_id(bytes, id);
  const auto hash = static_cast<std::uint16_t>(XXH3_64bits(bytes.data(), bytes.size()));
  return hash == 0 ? std::uint16_t{1} : hash;
}

// Where the ids, the hashes and job · line lie within a key.
struct Layout {
  std::size_t num_ids = 0;
  std::size_t hashes_at = 0;
  std::size_t num_hashes = 0;
  std::size_t line_at = 0;
};

std::optional<Layout> find_layout(std::string_view key) {
  if (key.size() < kLevelBytes + kHashBytes + keys::kLineKeyBytes) return std::nullopt;
  const std::size_t end = key.size() - keys::kLineKeyBytes;
  Layout layout;
  std::size_t at = kLevelBytes;
  while (true) {
    if (layout.num_ids == kMaxKeyIds) break;
    if (at + kIdBytes > end) return std::nullopt;
    const bool is_terminator = keys::get_u24(key.data() + at) == 0;
    at += kIdBytes;
    if (is_terminator) {
      layout.hashes_at = at;
      layout.line_at = at;
      if (at != end) return std::nullopt;
      return layout;
    }
    ++layout.num_ids;
  }
  layout.hashes_at = at;
  while (true) {
    if (at + kHashBytes > end) return std::nullopt;
    const bool is_terminator = key[at] == 0 && key[at + 1] == 0;
    at += kHashBytes;
    if (is_terminator) break;
    ++layout.num_hashes;
  }
  layout.line_at = at;
  if (at != end) return std::nullopt;
  return layout;
}

}  // namespace

PlanKey make_plan_key(const PlanEntry& entry) {
  if (entry.prompts.empty()) throw std::invalid_argument("a plan entry needs a prompt");
  if (entry.priority < kMinPriority || entry.priority > kMaxPriority) {
    throw std::invalid_argument("priority " + std::to_string(entry.priority) +
                                " is not in -10 ... 10");
  }
  const std::span<const std::int32_t> ids = entry.prompts.front();
  const std::size_t num_key_ids = std::min(ids.size(), kMaxKeyIds);
  PlanKey key;
  key.reserve(kLevelBytes + num_key_ids * kIdBytes + kIdBytes + ids.size() / 32 +
              keys::kLineKeyBytes);
  key += static_cast<char>(kMaxPriority - entry.priority);
  key += entry.short_lane ? '\0' : '\1';
  put_fingerprint(key, entry.fingerprint);
  for (std::int32_t id : ids.first(num_key_ids)) put_id(key, id);
  if (num_key_ids < kMaxKeyIds) {
    key.append(kIdBytes, '\0');
  } else {
    for (std::size_t i = kMaxKeyIds; i + kHashedIds <= ids.size(); i += kHashedIds) {
      const std::uint16_t hash = hash_ids(ids.subspan(i, kHashedIds));
      key += static_cast<char>(hash >> 8);
      key += static_cast<char>(hash & 0xff);
    }
    key.append(kHashBytes, '\0');
  }
  key += keys::line_key(entry.key);
  return key;
}

std::optional<PlanKeyParts> parse_plan_key(std::string_view key) {
  const std::optional<Layout> layout = find_layout(key);
  const std::optional<PlanLevel> level = plan_level_of(key);
  if (!layout || !level) return std::nullopt;
  PlanKeyParts parts;
  parts.priority = level->priority;
  parts.short_lane = level->short_lane;
  parts.fingerprint = level->fingerprint;
  parts.ids.reserve(layout->num_ids);
  for (std::size_t i = 0; i < layout->num_ids; ++i) {
    parts.ids.push_back(
        static_cast<std::int32_t>(keys::get_u24(key.data() + kLevelBytes + i * kIdBytes)) - 1);
  }
  parts.line = *keys::parse_line_key(key.substr(layout->line_at));
  return parts;
}

std::optional<PlanLevel> plan_level_of(std::string_view key) {
  constexpr char kHex[] = "0123456789abcdef";
  if (key.size() < kLevelBytes) return std::nullopt;
  const auto level = static_cast<std::uint8_t>(key[0]);
  const auto lane = static_cast<std::uint8_t>(key[1]);
  if (level > kMaxPriority - kMinPriority || lane > 1) return std::nullopt;
  PlanLevel out;
  out.priority = kMaxPriority - level;
  out.short_lane = lane == 0;
  for (char c : key.substr(2, 8)) {
    out.fingerprint += kHex[static_cast<std::uint8_t>(c) >> 4];
    out.fingerprint += kHex[static_cast<std::uint8_t>(c) & 15];
  }
  out.first = key.substr(0, kLevelBytes);
  out.limit = keys::behind(out.first);
  return out;
}

std::uint32_t common_prefix_tokens(const PlanKey& a, const PlanKey& b) {
  const std::optional<Layout> layout_a = find_layout(a);
  const std::optional<Layout> layout_b = find_layout(b);
  if (!layout_a || !layout_b || a.compare(2, 8, b, 2, 8) != 0) return 0;
  const std::size_t num_ids = std::min(layout_a->num_ids, layout_b->num_ids);
  const auto ids_a = a.begin() + kLevelBytes;
  const auto equal_bytes =
      std::mismatch(ids_a, ids_a + static_cast<std::ptrdiff_t>(num_ids * kIdBytes),
                    b.begin() + kLevelBytes)
          .first -
      ids_a;
  const std::size_t equal_ids = static_cast<std::size_t>(equal_bytes) / kIdBytes;
  if (equal_ids < kMaxKeyIds) return static_cast<std::uint32_t>(equal_ids);
  const std::size_t num_hashes = std::min(layout_a->num_hashes, layout_b->num_hashes);
  std::size_t equal_hashes = 0;
  while (equal_hashes < num_hashes &&
         a.compare(layout_a->hashes_at + equal_hashes * kHashBytes, kHashBytes, b,
                   layout_b->hashes_at + equal_hashes * kHashBytes, kHashBytes) == 0) {
    ++equal_hashes;
  }
  return static_cast<std::uint32_t>(equal_ids + equal_hashes * kHashedIds);
}

std::string make_prompt_key(const LineKey& line, std::string_view fingerprint,
                            std::span<const std::int32_t> prompt, std::uint32_t number) {
  std::string key = keys::job_prefix(line.job);
  key.reserve(key.size() + 8 + (prompt.size() + 1) * kIdBytes + 12);
  put_fingerprint(key, fingerprint);
  for (std::int32_t id : prompt) put_id(key, id);
  key.append(kIdBytes, '\0');
  keys::put_u64(key, line.line);
  keys::put_u32(key, number);
  return key;
}

}  // namespace batchmill
