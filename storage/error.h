// How the store fails.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace batchmill {

// The store could not do what was asked; what was stored before stays. One clear line of text.
class StorageError : public std::runtime_error {
 public:
  enum class Kind : std::uint8_t {
    kLocked,  // another process holds the database
    kDamaged,  // a file or record does not hold what was written; the message names it
    kFull,  // no space left, or the directory does not let us write
    kNewerSchema,  // written by a newer program
    kMissing,  // no store there (read-only), or no such job
    kIo,  // any other failure of the disk or of the caller's mode
  };
  StorageError(Kind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

}  // namespace batchmill
