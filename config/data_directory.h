// Where a daemon keeps its data and where its sockets are. Programs that talk to each other compute
// the same places from the same data directory.
#pragma once

#include <string>
#include <vector>

#include "config/daemon_config.h"

namespace batchmill {

// The data directory as an absolute path: `flag` (--data) if not empty, else $BATCHMILL_DATA, else
// [storage] path, else $XDG_STATE_HOME/batchmill, else ~/.local/state/batchmill. Does not create
// it. Throws ConfigError if no rule applies (no HOME).
std::string data_directory(const std::string& flag, const DaemonConfig& config,
                           const Environment& environment);

// Creates `path` and its missing parents, the last one with mode 0700. An existing directory must
// belong to this user and is made 0700. Throws ConfigError.
void make_private_directory(const std::string& path);

// What a daemon serves besides the data directory's control socket if [queue] endpoint names
// nothing else: ipc://DATA/queue.sock. A socket's path holds at most 107 bytes; a longer one
// becomes RUNTIME/batchmill-HASH.sock, where RUNTIME is $XDG_RUNTIME_DIR or, without one,
// /tmp/batchmill-UID (made private by prepare_endpoint).
std::string default_queue_endpoint(const std::string& data_directory,
                                   const Environment& environment);

// What a daemon binds besides: the default endpoint, then [queue] endpoint if it is set and another
// one.
std::vector<std::string> queue_endpoints(const DaemonConfig& config,
                                         const std::string& data_directory,
                                         const Environment& environment);

// Where a daemon's keys are: [queue] curve_secret_key_file and allowed_clients_file, else files in
// the data directory. The first is "" if it is not named and not there: the daemon asks for no
// keys.
std::string server_key_file(const DaemonConfig& config, const std::string& data_directory);
std::string allowed_clients_file(const DaemonConfig& config, const std::string& data_directory);
inline constexpr const char* kServerKeyName = "server.key";

// Makes sure that the directory of an ipc:// endpoint exists and, if this function made it or it is
// batchmill's own under /tmp, is private. Call it before binding. Throws ConfigError.
void prepare_endpoint(const std::string& endpoint);

}  // namespace batchmill
