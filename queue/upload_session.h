// The server's side of one upload, without any input or output: takes the chunks a client sends,
// cuts them into lines, and knows what to answer. It survives the client's reconnects; after a
// restart of the server a new one goes on where the durable lines end. Owned by the intake, one
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "queue/content_hash.h"
#include "queue/line_splitter.h"
#include "queue/wire.h"

namespace batchmill {

struct UploadLimits {
  std::uint64_t max_line_bytes = 0;
  std::uint64_t credit_bytes = 0;  // at least the largest chunk that clients send
};

class UploadSession {
 public:
  // Goes on behind `durable_lines` lines, which end at content offset `durable_bytes` (0 and 0 for
  // a new upload).
  UploadSession(std::string job, UploadLimits limits, std::uint64_t durable_lines,
                std::uint64_t durable_bytes);

  struct Step {
    std::vector<InputLine> lines;  // store these, in order; then call durable()
    std::optional<Json> reply;  // send this now
    bool ended = false;  // no more lines will come: once all are durable, seal and answer "sealed"
  };
  // "data": a chunk at a content offset. What came before is ignored, a gap is refused.
  Step data(const Json& header, std::string_view payload);
  // How far the content reaches with this chunk. One that came before adds nothing, and neither
  // does one that data() will refuse.
  std::uint64_t reach_bytes(const Json& header, std::size_t chunk_bytes) const;
  // "end": the content is complete. May come again.
  Step end(const Json& header);
  // Every line that ends at or before this content offset is durable. Returns the "ack" to send.
  Json durable(std::uint64_t offset_bytes);

  // How far the client may be ahead of the disk from now on; what it was told before stays.
  void set_credit(std::uint64_t credit_bytes) { credit_bytes_ = credit_bytes; }
  // That it was told it may send, and that is not durable.
  std::uint64_t granted_bytes() const { return limit_bytes_ - durable_bytes_; }

  // The answer to an "open" (`request`) that begins or resumes this upload.
  Json opened(const Json& request) const;

  const std::string& job() const { return job_; }
  std::uint64_t durable_bytes() const { return durable_bytes_; }
  std::uint64_t received_bytes() const { return received_bytes_; }
  // Lines were handed out that durable() has not covered yet.
  bool pending() const { return handed_out_bytes_ > durable_bytes_; }
  bool ended() const { return ended_; }
  // Of the whole content once it has ended: as computed, or as the client states it when this
  // session did not see its beginning.
  std::string content_hash() const;

 private:
  Json ack() const;
  Json error(std::string_view code, const std::string& message) const;
  void extend_limit();

  std::string job_;
  std::uint64_t credit_bytes_;
  LineSplitter splitter_;
  std::optional<ContentHasher> hasher_;  // only if the session has seen every byte
  std::string stated_hash_;
  std::uint64_t durable_bytes_;  // all before it is on disk
  std::uint64_t handed_out_bytes_;  // end of the last line handed out
  std::uint64_t received_bytes_;  // all before it was fed to the splitter
  std::uint64_t limit_bytes_ = 0;  // the client may send what lies before it; never shrinks
  bool ended_ = false;
};

// The answer when a job's upload is complete, also to an "open" whose content is known already.
Json sealed_header(std::string_view job, std::uint64_t lines);

}  // namespace batchmill
