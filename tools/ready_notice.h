// Tells the service manager how the daemon stands: datagrams to $NOTIFY_SOCKET (sd_notify). Does
// nothing without that variable.
#pragma once

#include <string>

namespace batchmill {

// `state`: "READY=1", "STOPPING=1", "RELOADING=1" … False when the socket did not take it.
bool notify_service_manager(const std::string& state);

}  // namespace batchmill
