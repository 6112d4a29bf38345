#include "queue/listener.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>

#include "queue/curve_keys.h"
#include "queue/endpoint.h"
#include "queue/socket_path.h"
#include "queue/zap_handler.h"

namespace batchmill {
namespace {

// Files made while it lives are the user's alone.
class PrivateUmask {
 public:
  PrivateUmask() : before_(::umask(077)) {}
  ~PrivateUmask() { ::umask(before_); }
  PrivateUmask(const PrivateUmask&) = delete;
  PrivateUmask& operator=(const PrivateUmask&) = delete;

 private:
  mode_t before_;
};

// Of those who connect to what is bound next.
void ask_for_keys(zmq::socket_t& router, const std::string& file) {
  CurveKeys keys = read_secret_key(file);
  router.set(zmq::sockopt::curve_secretkey, keys.secret_key);
  ::explicit_bzero(keys.secret_key.data(), keys.secret_key.size());
  router.set(zmq::sockopt::curve_server, true);
  router.set(zmq::sockopt::zap_domain, std::string(ZapHandler::kWithKeys));
}

void bind(zmq::socket_t& router, const std::string& endpoint, const std::string& key_file) {
  check_served_endpoint(endpoint, !key_file.empty());
  const auto path = socket_path(endpoint);
  router.set(zmq::sockopt::zap_domain, std::string(ZapHandler::kWithoutKeys));
  if (!path) {
    if (!key_file.empty()) ask_for_keys(router, key_file);
    router.bind(endpoint);
    router.set(zmq::sockopt::curve_server, false);
    return;
  }
  remove_stale_socket(*path);
  // The socket is private before anyone can open it, whatever the process's umask is.
  const PrivateUmask umask;
  router.bind(endpoint);
  if (::chmod(path->c_str(), 0600) != 0) {
    throw std::system_error(errno, std::generic_category(), *path);
  }
}

}  // namespace

std::string listen(zmq::socket_t& router, const std::string& endpoint,
                   const std::string& curve_secret_key_file) {
  try {
    bind(router, endpoint, curve_secret_key_file);
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format("cannot listen on {}: {}", endpoint, error.what()));
  }
  return router.get(zmq::sockopt::last_endpoint);
}

}  // namespace batchmill
