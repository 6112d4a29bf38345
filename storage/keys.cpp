#include "storage/keys.h"

#include <algorithm>

namespace batchmill::keys {
namespace {

template <int kBytes>
void put(std::string& out, std::uint64_t value) {
  for (int shift = (kBytes - 1) * 8; shift >= 0; shift -= 8) {
    out += static_cast<char>(value >> shift & 0xff);
  }
}

template <int kBytes>
std::uint64_t get(const char* at) {
  std::uint64_t value = 0;
  for (int i = 0; i < kBytes; ++i) value = value << 8 | static_cast<std::uint8_t>(at[i]);
  return value;
}

void put_text(std::string& out, std::string_view text) {
  put_u32(out, static_cast<std::uint32_t>(text.size()));
  out += text;
}

bool get_text(std::string_view& rest, std::string& text) {
  if (rest.size() < 4) return false;
  const std::size_t size = get_u32(rest.data());
  rest.remove_prefix(4);
  if (rest.size() < size) return false;
  text = rest.substr(0, size);
  rest.remove_prefix(size);
  return true;
}

}  // namespace

void put_u24(std::string& out, std::uint32_t value) { put<3>(out, value); }
void put_u32(std::string& out, std::uint32_t value) { put<4>(out, value); }
void put_u64(std::string& out, std::uint64_t value) { put<8>(out, value); }
std::uint32_t get_u24(const char* at) { return static_cast<std::uint32_t>(get<3>(at)); }
std::uint32_t get_u32(const char* at) { return static_cast<std::uint32_t>(get<4>(at)); }
std::uint64_t get_u64(const char* at) { return get<8>(at); }

std::string job_prefix(const JobId& id) {
  return std::string(reinterpret_cast<const char*>(id.bytes.data()), id.bytes.size());
}

JobId get_job(const char* at) {
  JobId id;
  std::copy_n(at, kJobBytes, reinterpret_cast<char*>(id.bytes.data()));
  return id;
}

std::string line_key(const LineKey& key) {
  std::string out = job_prefix(key.job);
  put_u64(out, key.line);
  return out;
}

std::optional<LineKey> parse_line_key(std::string_view key) {
  if (key.size() != kLineKeyBytes) return std::nullopt;
  return LineKey{get_job(key.data()), get_u64(key.data() + kJobBytes)};
}

std::string behind(std::string_view prefix) {
  std::string out(prefix);
  while (!out.empty() && out.back() == '\xff') out.pop_back();
  if (!out.empty()) out.back() = static_cast<char>(static_cast<std::uint8_t>(out.back()) + 1);
  return out;
}

std::string job_key(const JobId& id, JobPart part) {
  return job_prefix(id) + static_cast<char>(part);
}

std::string idempotency_key(std::string_view owner, std::string_view key) {
  std::string out = owner.empty() ? "key/" : "owner/";
  if (!owner.empty()) {
    // Owners may hold any character, so their length keeps them apart from the key.
    put_u32(out, static_cast<std::uint32_t>(owner.size()));
    out += owner;
  }
  out += key;
  return out;
}

std::string id_key(const JobId& id, std::string_view custom_id) {
  std::string out = job_prefix(id);
  out += custom_id;
  return out;
}

std::string ledger_key(const LedgerKey& key) {
  std::string out = job_prefix(key.job);
  put_u32(out, key.day);
  put_text(out, key.model);
  put_text(out, key.currency);
  put_text(out, key.price_version);
  return out;
}

std::optional<LedgerKey> parse_ledger_key(std::string_view key) {
  if (key.size() < kJobBytes + 4) return std::nullopt;
  LedgerKey out;
  out.job = get_job(key.data());
  out.day = get_u32(key.data() + kJobBytes);
  key.remove_prefix(kJobBytes + 4);
  if (!get_text(key, out.model) || !get_text(key, out.currency) ||
      !get_text(key, out.price_version) || !key.empty()) {
    return std::nullopt;
  }
  return out;
}

std::string hex(std::string_view bytes) {
  constexpr std::size_t kShown = 32;
  constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (char c : bytes.substr(0, kShown)) {
    out += kHex[static_cast<std::uint8_t>(c) >> 4];
    out += kHex[static_cast<std::uint8_t>(c) & 15];
  }
  if (bytes.size() > kShown) out += "…";
  return out;
}

}  // namespace batchmill::keys
