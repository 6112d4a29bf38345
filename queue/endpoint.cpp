#include "queue/endpoint.h"

#include <arpa/inet.h>
#include <fmt/core.h>

#include <stdexcept>

namespace batchmill {
namespace {

constexpr std::string_view kTcp = "tcp://";
constexpr std::string_view kIpc = "ipc://";

}  // namespace

bool is_tcp(std::string_view endpoint) { return endpoint.starts_with(kTcp); }

bool is_loopback(std::string_view endpoint) {
  if (!is_tcp(endpoint)) return false;
  endpoint.remove_prefix(kTcp.size());
  // "SOURCE;HOST:PORT" is what only a client writes.
  if (endpoint.find(';') != std::string_view::npos) return false;
  const std::string host(endpoint.substr(0, endpoint.rfind(':')));
  if (host == "localhost" || host == "lo" || host == "[::1]" || host == "::1") return true;
  in_addr address = {};
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1 && ntohl(address.s_addr) >> 24 == 127;
}

void check_served_endpoint(const std::string& endpoint, bool has_keys) {
  if (endpoint.starts_with(kIpc)) return;
  if (!is_tcp(endpoint)) {
    throw std::invalid_argument(
        fmt::format("{}: a daemon serves ipc://PATH and tcp://HOST:PORT", endpoint));
  }
  if (has_keys || is_loopback(endpoint)) return;
  throw std::invalid_argument(fmt::format(
      "{}: other machines can reach this endpoint, so it needs a server key (`batchmill "
      "keys new --server`) and keys of clients (`batchmill keys allow`)",
      endpoint));
}

}  // namespace batchmill
