// The fields of a request's body: the first byte says of which endpoint, the rest is the body.
#include <array>

#include "tests/fuzz/batch_line_check.h"
#include "tests/fuzz/fuzz_target.h"

namespace batchmill::fuzz {

void run(std::string_view input) {
  constexpr std::array kUrls = {"/v1/chat/completions", "/v1/completions", "/v1/embeddings"};
  if (input.empty()) return;
  const auto endpoint = static_cast<unsigned char>(input.front()) % kUrls.size();
  std::string line = R"({"custom_id":"id","method":"POST","url":")";
  line += kUrls[endpoint];
  line += R"(","body":)";
  line += input.substr(1);
  line += '}';
  check_parsed_line(line, parse_batch_line(line, BatchLineLimits()));
}

}  // namespace batchmill::fuzz
