// A message's frames: the header, what an "open" asks for, and an upload's messages, one part of
// the input each.
#include "queue/field_reader.h"
#include "queue/open_request.h"
#include "queue/upload_session.h"
#include "tests/fuzz/fuzz_target.h"

namespace batchmill::fuzz {
namespace {

void check_open(const Json& header) {
  std::string why;
  const std::optional<OpenRequest> request = read_open_request(header, &why);
  if (!request) return require(!why.empty(), "a refusal has no reason");
  require(!request->key.empty(), "an open request has no key");
  require(request->priority >= -10 && request->priority <= 10, "a priority is out of range");
  require(request->deadline_s >= 0, "a deadline is negative");
  require(request->metadata.size() <= 16, "there are too many metadata");
}

}  // namespace

void run(std::string_view input) {
  UploadSession session("batch_x", {.max_line_bytes = 1000, .credit_bytes = 2000}, 3, 90);
  for (const auto& [name, content] : split_parts(input)) {
    std::string why;
    const std::optional<Json> header = decode_header(name.empty() ? content : name, &why);
    if (!header) {
      require(!why.empty(), "a refusal has no reason");
      continue;
    }
    if (!holds_infinity(*header)) {
      require(decode_header(encode_header(*header), &why) == header,
              "a header does not survive sending");
    }
    const Json answer = error_header(*header, "some_code", content);
    require(decode_header(encode_header(answer), &why).has_value(), "an answer cannot be read");
    check_open(*header);
    const std::string op = header->at("op").get<std::string>();
    const std::uint64_t received = session.received_bytes();
    if (op == "data") session.data(*header, content);
    if (op == "end") session.end(*header);
    if (op == "open") encode_header(session.opened(*header));
    require(session.received_bytes() >= received, "an upload went backwards");
    require(session.received_bytes() <= received + content.size(), "an upload took too much");
  }
}

}  // namespace batchmill::fuzz
