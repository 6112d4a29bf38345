// The file behind an ipc:// endpoint: private to the user, and never taken from a process that
// still serves it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace batchmill {

// The path of an ipc:// endpoint, absent for other transports. Throws std::runtime_error for one
// that no socket can have: empty, abstract ("@…", open to every user), over 107 bytes.
std::optional<std::string> socket_path(std::string_view endpoint);

// Removes a socket that a dead process left at `path`. Throws std::runtime_error if a process
// answers there or the file is no socket.
void remove_stale_socket(const std::string& path);

}  // namespace batchmill
