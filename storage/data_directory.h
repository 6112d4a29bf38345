// The data directory: made private to the user, and locked by the one process that writes it.
#pragma once

#include <memory>
#include <string>

namespace batchmill {

class DataDirectory {
 public:
  enum class Lock { kExclusive, kShared };

  // Creates `path` (mode 0700, parents too) and takes the lock (flock on DATA/lock). Throws
  // StorageError: kLocked names the process that holds it; kIo, kMissing (shared: nothing there).
  DataDirectory(std::string path, Lock lock);
  ~DataDirectory();
  DataDirectory(const DataDirectory&) = delete;
  DataDirectory& operator=(const DataDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string store_path() const { return path_ + "/store"; }
  // ipc://DATA/control.sock, which whoever holds the directory answers on. Where that has more than
  // the 107 bytes of a socket's path: a socket in $XDG_RUNTIME_DIR or, without one, in
  // /tmp/batchmill-UID, which is made, and must be this user's. Throws StorageError (kIo).
  static std::string control_endpoint(const std::string& path);

  // Pid of the process that holds the directory exclusively, 0 if none does.
  static int holder(const std::string& path);

 private:
  std::string path_;
  int fd_ = -1;
};

}  // namespace batchmill
