// An upload's chunks, as a stream of bytes and as the server takes them. Of each step the first
// byte says what is done: data go on, come again, leave a gap; lines become durable; the upload
// ends. The next byte is the length of its data.
#include <algorithm>

#include "queue/upload_session.h"
#include "tests/fuzz/fuzz_target.h"

namespace batchmill::fuzz {
namespace {

constexpr std::uint64_t kMaxLineBytes = 5000;

std::vector<InputLine> split(std::string_view content, std::size_t chunk) {
  std::vector<InputLine> lines;
  LineSplitter splitter(kMaxLineBytes, 1, 0);
  for (std::size_t at = 0; at < content.size(); at += chunk) {
    splitter.feed(content.substr(at, chunk), &lines);
  }
  splitter.finish(&lines);
  require(splitter.offset_bytes() == content.size(), "the splitter lost bytes");
  return lines;
}

void check_same(const std::vector<InputLine>& a, const std::vector<InputLine>& b) {
  require(a.size() == b.size(), "the number of lines depends on the chunks");
  for (std::size_t i = 0; i < a.size(); ++i) {
    require(a[i].line == b[i].line && a[i].bytes == b[i].bytes && a[i].too_long == b[i].too_long &&
                a[i].end_offset_bytes == b[i].end_offset_bytes,
            "a line depends on the chunks");
  }
}

}  // namespace

void run(std::string_view input) {
  UploadSession session("batch_x", {.max_line_bytes = kMaxLineBytes, .credit_bytes = 6000}, 0, 0);
  std::string content;  // what the session has taken
  std::vector<InputLine> lines;
  bool ended = false;
  const auto take = [&](UploadSession::Step step) {
    for (InputLine& line : step.lines) lines.push_back(std::move(line));
    require(session.durable_bytes() <= session.received_bytes(), "more is durable than arrived");
    ended = step.ended;
  };
  while (input.size() >= 2 && !ended) {
    const auto kind = static_cast<unsigned char>(input[0]);
    const std::string_view data = input.substr(2, static_cast<unsigned char>(input[1]));
    input.remove_prefix(2 + data.size());
    const std::uint64_t before = session.received_bytes();
    if (kind % 8 < 4) {
      take(session.data({{"op", "data"}, {"offset", before}}, data));
    } else if (kind % 8 == 4) {
      const std::uint64_t offset = before - std::min<std::uint64_t>(before, kind);
      // What comes again must be what came before.
      const std::string again = content.substr(offset) + std::string(data);
      take(session.data({{"op", "data"}, {"offset", offset}}, again));
    } else if (kind % 8 == 5) {
      take(session.data({{"op", "data"}, {"offset", before + 1 + kind}}, data));
      require(session.received_bytes() == before, "data behind a gap were taken");
    } else if (kind % 8 == 6) {
      session.durable(before - std::min<std::uint64_t>(before, kind));
    } else {
      take(session.end({{"op", "end"}, {"bytes", before + (kind == 7 ? 0 : 1)}}));
    }
    if (session.received_bytes() > before) content += data;
    require(session.received_bytes() == content.size(), "the session counts other bytes");
  }
  if (!ended) take(session.end({{"op", "end"}, {"bytes", session.received_bytes()}}));
  require(session.ended(), "an upload does not end");
  check_same(lines, split(content, std::max<std::size_t>(content.size(), 1)));
  check_same(lines, split(content, 1 + content.size() / 100));
}

}  // namespace batchmill::fuzz
