// A job file as it is read: plain, gzip or zstd.
#include <algorithm>

#include "queue/decompressor.h"
#include "queue/input_stream.h"
#include "tests/fuzz/fuzz_target.h"

namespace batchmill::fuzz {
namespace {

constexpr std::size_t kMaxBytes = 1 << 15;  // a small archive may hold a lot

}  // namespace

void run(std::string_view input) {
  static ScratchFile file;
  file.write(input);
  detect_compression(input);
  accepts<InputError>([&] {
    const std::unique_ptr<InputStream> stream = InputStream::open(file.path());
    std::string content(kMaxBytes, '\0');
    std::size_t size = 0;
    while (size < kMaxBytes) {
      const std::size_t wanted = std::min<std::size_t>(kMaxBytes - size, 4093);
      const std::size_t count = stream->read_at(size, content.data() + size, wanted);
      require(count <= wanted, "more was read than fits");
      if (count == 0) break;
      size += count;
    }
    if (detect_compression(input) == Compression::kNone) {
      require(content.substr(0, size) == input.substr(0, kMaxBytes), "plain bytes changed");
    }
    // Steps back, as a resumed upload does.
    const std::size_t offset = size / 3;
    std::string again(size - offset, '\0');
    std::size_t at = 0;
    while (at < again.size()) {
      const std::size_t count = stream->read_at(offset + at, again.data() + at, again.size() - at);
      require(count > 0, "a second reading ends early");
      at += count;
    }
    require(again == content.substr(offset, size - offset), "a second reading differs");
  });
}

}  // namespace batchmill::fuzz
