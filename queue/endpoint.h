// Who can reach an endpoint. Pure functions.
#pragma once

#include <string>
#include <string_view>

namespace batchmill {

bool is_tcp(std::string_view endpoint);
// tcp:// on an address of this machine's own: 127.0.0.0/8, [::1], localhost, lo.
bool is_loopback(std::string_view endpoint);

// Throws std::invalid_argument for what must not be served: neither ipc:// nor tcp://, or tcp://
// that other machines can reach without keys.
void check_served_endpoint(const std::string& endpoint, bool has_keys);

}  // namespace batchmill
