#include "queue/content_hash.h"

#include <xxhash.h>

#include <new>
#include <vector>

#include "queue/input_stream.h"

namespace batchmill {

struct ContentHasher::State {
  State() : xxh(XXH3_createState()) {
    if (xxh == nullptr) throw std::bad_alloc();
    XXH3_128bits_reset(xxh);
  }
  ~State() { XXH3_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  XXH3_state_t* xxh;
};

ContentHasher::ContentHasher() : state_(std::make_unique<State>()) {}
ContentHasher::~ContentHasher() = default;
ContentHasher::ContentHasher(ContentHasher&&) noexcept = default;
ContentHasher& ContentHasher::operator=(ContentHasher&&) noexcept = default;

void ContentHasher::update(std::string_view bytes) {
  XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size());
}

std::string ContentHasher::hex() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_->xxh));
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : canonical.digest) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

std::string content_hash(InputStream& input) {
  std::vector<char> buffer(1 << 20);
  ContentHasher hasher;
  std::uint64_t offset = 0;
  while (const std::size_t size = input.read_at(offset, buffer.data(), buffer.size())) {
    hasher.update(std::string_view(buffer.data(), size));
    offset += size;
  }
  return hasher.hex();
}

}  // namespace batchmill
