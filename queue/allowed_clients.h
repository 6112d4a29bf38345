// The clients that may connect with a key: a text file, one client a line,
//   KEY [name=NAME] [admin] [max_bytes=N] [max_lines=N] [max_jobs=N]
// where KEY is a public key; lines that begin with "# " and empty ones say nothing. One thread.
#pragma once

#include <sys/stat.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "queue/caller.h"

namespace batchmill {

// Throws std::runtime_error naming the line and what is wrong with it.
std::vector<Caller> parse_allowed_clients(std::string_view text);
std::string allowed_client_line(const Caller& client);
// A name of letters, digits and "._@-", at most 64.
bool is_client_name(std::string_view name);

// Changes the file under a lock, in one step for those who read it: mode 0600. A file that is not
// there is empty. Throws std::runtime_error.
void edit_allowed_clients(const std::string& path,
                          const std::function<void(std::vector<Caller>&)>& edit);

class AllowedClients {
 public:
  // A file that is not there allows nobody. Throws std::runtime_error if it cannot be read, is not
  // as above, or may be written by others.
  explicit AllowedClients(std::string path);

  // Reads the file again if it is another one than before; true if it was. Throws as above, once
  // per change: the clients of before stay allowed then.
  bool refresh();

  const Caller* find(std::string_view key) const;  // null: not allowed; valid until refresh()
  const std::vector<Caller>& all() const { return clients_; }

 private:
  struct Version {
    bool there = false;
    dev_t device = 0;
    ino_t inode = 0;
    off_t size = 0;
    timespec modified = {}, changed = {};
    bool same_as(const Version& other) const;
  };
  Version version_on_disk() const;

  std::string path_;
  Version version_;
  std::vector<Caller> clients_;  // sorted by key
};

}  // namespace batchmill
