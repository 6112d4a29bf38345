#include "queue/durable_name.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace batchmill {

bool make_name_durable(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool is_synced = ::fsync(fd) == 0;
  const int error = errno;
  ::close(fd);
  errno = error;
  return is_synced;
}

}  // namespace batchmill
