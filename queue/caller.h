// Who sent a message: a client with a key of its own, or the operator, who reaches sockets that
// nobody else can open. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace batchmill {

struct Caller {
  std::string key;  // the client's public CURVE key, 40 characters; empty: the operator
  std::string name;  // for people
  bool admin = true;  // sees every job, and may do what concerns the whole store
  // Limits of a client's uploads; 0: none.
  std::uint64_t max_bytes = 0;  // content of one job
  std::uint64_t max_lines = 0;  // of one job
  std::uint64_t max_jobs = 0;  // that have not ended

  // `owner`: the key that made a job; empty: the operator did.
  bool may_see(std::string_view owner) const { return admin || owner == key; }
  bool operator==(const Caller&) const = default;
};

}  // namespace batchmill
