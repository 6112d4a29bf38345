// Settings of the queue.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace batchmill {

struct QueueOptions {
  std::vector<std::string> endpoints;  // ZeroMQ endpoints to serve; ipc:// sockets become 0600
  std::string curve_secret_key_file;  // empty: no keys, and tcp:// on loopback only
  std::string allowed_clients_file;  // public keys of clients and what they may do
  std::uint64_t max_line_bytes = 16ull << 20;
  std::uint64_t max_message_bytes = 1ull << 20;  // a larger frame ends the connection
  std::uint64_t credit_bytes = 16ull << 20;  // unacked upload bytes one client may have
  // Of content that is not durable yet, all uploads together; each gets at least min_credit_bytes.
  std::uint64_t total_credit_bytes = 256ull << 20;
  std::uint64_t min_credit_bytes = 64ull << 10;
  // Messages that were received and are being worked on; above it nothing more is read.
  std::uint64_t max_working_bytes = 64ull << 20;
  // Waiting for one peer, and for all; above it the peer, or the one with the most, is dropped.
  std::uint64_t max_outbox_bytes = 64ull << 20;
  std::uint64_t max_outboxes_bytes = 256ull << 20;
  std::int32_t max_connections = 1024;
  std::int32_t upload_timeout_s = 3600;  // idle uploads are closed
};

}  // namespace batchmill
