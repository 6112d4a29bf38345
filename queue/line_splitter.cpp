#include "queue/line_splitter.h"

#include <utility>

namespace batchmill {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::size_t kKeptOfLongLine = 4096;
constexpr std::uint64_t kRoomForMarks = 16;  // byte order marks and a CR do not count as content

std::string_view strip_marks(std::string_view line) {
  while (line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
  return line;
}

std::string_view strip(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  return strip_marks(line);
}

}  // namespace

LineSplitter::LineSplitter(std::uint64_t max_line_bytes, std::uint64_t next_line,
                           std::uint64_t offset_bytes)
    : max_line_bytes_(max_line_bytes), next_line_(next_line), offset_bytes_(offset_bytes) {}

void LineSplitter::feed(std::string_view bytes, std::vector<InputLine>* lines) {
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    offset_bytes_ += piece.size();
    if (end != std::string_view::npos && at_line_start() && piece.size() <= max_line_bytes_) {
      offset_bytes_ += 1;
      add_line(strip(piece), false, lines);
    } else {
      keep(piece);
      if (end == std::string_view::npos) return;
      offset_bytes_ += 1;
      end_line(lines);
    }
    bytes.remove_prefix(end + 1);
  }
}

void LineSplitter::finish(std::vector<InputLine>* lines) {
  if (!at_line_start()) end_line(lines);
}

void LineSplitter::keep(std::string_view piece) {
  if (skipping_ || piece.empty()) return;
  partial_.append(piece.substr(0, max_line_bytes_ + kRoomForMarks + 1 - partial_.size()));
  if (partial_.size() <= max_line_bytes_ + kRoomForMarks) return;
  skipping_ = true;
  partial_ = std::string(strip_marks(partial_).substr(0, kKeptOfLongLine));
}

void LineSplitter::end_line(std::vector<InputLine>* lines) {
  const std::string_view content = skipping_ ? std::string_view(partial_) : strip(partial_);
  add_line(content, skipping_ || content.size() > max_line_bytes_, lines);
  partial_.clear();
  skipping_ = false;
}

void LineSplitter::add_line(std::string_view content, bool too_long,
                            std::vector<InputLine>* lines) {
  InputLine line;
  line.line = next_line_++;
  line.end_offset_bytes = offset_bytes_;
  line.too_long = too_long;
  line.bytes = too_long ? content.substr(0, kKeptOfLongLine) : content;
  lines->push_back(std::move(line));
}

}  // namespace batchmill
