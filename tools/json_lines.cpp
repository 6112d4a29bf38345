#include "tools/json_lines.h"

#include <fmt/format.h>

#include <optional>
#include <vector>

#include "queue/input_stream.h"
#include "queue/json_reader.h"
#include "queue/line_splitter.h"
#include "tools/exit_code.h"

namespace batchmill {
namespace {

constexpr std::uint64_t kMaxLineBytes = 256ull << 20;

bool is_blank(const std::string& bytes) {
  return bytes.find_first_not_of(" \t\r\n") == std::string::npos;
}

}  // namespace

void for_each_json_line(const std::string& path, const JsonLineFunction& each,
                        const JsonLineFunction& broken) {
  const std::unique_ptr<InputStream> input = InputStream::open(path);
  LineSplitter splitter(kMaxLineBytes, 1, 0);
  std::vector<InputLine> lines;
  const auto hand_on = [&] {
    for (const InputLine& line : lines) {
      if (is_blank(line.bytes)) continue;
      const std::optional<Json> object = read_json(line.bytes, nullptr);
      if (line.too_long || !object || !object->is_object()) {
        if (broken) {
          broken(line.line, nullptr);
          continue;
        }
        throw ToolError(kExitUsage, fmt::format("{}:{}: not a JSON object", path, line.line));
      }
      each(line.line, *object);
    }
    lines.clear();
  };
  std::string buffer(1 << 20, '\0');
  std::uint64_t offset = 0;
  while (const std::size_t size = input->read_at(offset, buffer.data(), buffer.size())) {
    offset += size;
    splitter.feed(std::string_view(buffer.data(), size), &lines);
    hand_on();
  }
  splitter.finish(&lines);
  hand_on();
}

}  // namespace batchmill
