// The name of a job's content: XXH3-128 as 32 hex digits, as `xxhsum -H2` prints it. Not a defence
// against forgery. One owner, one thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace batchmill {

class ContentHasher {
 public:
  ContentHasher();
  ~ContentHasher();
  ContentHasher(ContentHasher&&) noexcept;
  ContentHasher& operator=(ContentHasher&&) noexcept;

  void update(std::string_view bytes);
  std::string hex() const;  // of all bytes so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace batchmill
