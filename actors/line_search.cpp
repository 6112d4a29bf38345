#include "actors/line_search.h"

#include <algorithm>
#include <vector>

#include "queue/batch_line.h"

namespace batchmill {
namespace {

constexpr std::size_t kPartLines = 20'000;
constexpr std::size_t kPartBytes = 4 << 20;

// False for most lines with another id, without reading them: an id is written as it is, or with
// an escape.
bool may_have(const StoredLine& line, const std::string& custom_id) {
  return line.bytes.find(custom_id) != std::string::npos ||
         line.bytes.find('\\') != std::string::npos;
}

}  // namespace

LineSearch find_line(const JobStore& store, const Job& job, const std::string& custom_id,
                     std::uint64_t from) {
  if (const std::uint64_t line = store.find_line(job.id, custom_id)) return {line, 0};
  const std::uint64_t first = std::max(from, job.state.prepared_through + 1);
  const std::vector<StoredLine> lines = store.read_lines(job.id, first, kPartLines, kPartBytes);
  for (const StoredLine& line : lines) {
    if (line.too_long || !may_have(line, custom_id)) continue;
    if (parse_batch_line(line.bytes, {}).custom_id == custom_id) return {line.line, 0};
  }
  return {0, lines.empty() ? 0 : lines.back().line + 1};
}

}  // namespace batchmill
