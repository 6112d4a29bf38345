#include "tools/result_lines.h"

#include <utility>

namespace batchmill {
namespace {

constexpr std::uint64_t kPageBytes = 2 << 20;

void split_lines(std::string_view payload, const std::function<void(std::string_view)>& sink) {
  while (!payload.empty()) {
    const std::size_t end = payload.find('\n');
    sink(payload.substr(0, end));
    payload.remove_prefix(end == std::string_view::npos ? payload.size() : end + 1);
  }
}

}  // namespace

ResultLines::ResultLines(Ask ask, ResultSelection selection)
    : ask_(std::move(ask)), selection_(std::move(selection)) {}

bool ResultLines::fetch(const std::function<void(std::string_view line)>& sink) {
  while (true) {
    Json request = {{"what", "results"},         {"job", selection_.job},
                    {"order", selection_.order}, {"side", selection_.side},
                    {"max_bytes", kPageBytes},   {"from", next_}};
    if (selection_.one) request["custom_id"] = selection_.custom_id;
    if (selection_.failed_input) request["failed_input"] = true;
    const WireMessage answer = ask_(request);
    split_lines(answer.payload, sink);
    counts_.outputs += answer.header.at("outputs").get<std::uint64_t>();
    counts_.errors += answer.header.at("errors").get<std::uint64_t>();
    next_ = answer.header.at("next");
    if (answer.header.at("at_end").get<bool>()) return answer.header.at("ended").get<bool>();
  }
}

bool is_failure(const Json& output_line) { return !output_line.at("error").is_null(); }

}  // namespace batchmill
