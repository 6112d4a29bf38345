// Clients that do what no client should, each kind through plain sockets of its own.
#pragma once

#include <cstdint>
#include <span>
#include <stop_token>
#include <string>

namespace batchmill::testing {

struct Target {
  std::string ipc;  // endpoints of one daemon
  std::string tcp;
  int connections = 0;  // of a crowd; other kinds have a share of it
  std::string job;  // a completed one with many results
};

struct HostileKind {
  const char* name;
  // Attacks once, from one thread, and leaves; early when asked to stop. Having no place, or being
  // thrown out, is no error. Each `round` is another attack, some of the same jobs.
  void (*attack)(const Target& target, std::uint64_t round, const std::stop_token& stop);
};

std::span<const HostileKind> hostile_kinds();

// The one line of the job that replays are made of, and its key.
std::string replayed_line();
inline constexpr const char* kReplayedKey = "replayed";

}  // namespace batchmill::testing
