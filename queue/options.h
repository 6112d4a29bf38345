// Settings of the queue.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace batchmill {

struct QueueOptions {
  std::vector<std::string> endpoints;  // ZeroMQ endpoints to serve; ipc:// sockets become 0600
  std::uint64_t max_line_bytes = 16ull << 20;
  std::uint64_t max_message_bytes = 8ull << 20;  // a larger frame ends the connection
  std::uint64_t credit_bytes = 16ull << 20;  // unacked upload bytes one client may have
  std::uint64_t max_outbox_bytes = 64ull
                                   << 20;  // waiting for one peer; above it the peer is dropped
  std::int32_t max_connections = 1024;
  std::int32_t upload_timeout_s = 3600;  // idle uploads are closed
};

}  // namespace batchmill
