// Cuts a byte stream into lines. Only LF ends a line; a CR before it and byte order marks at a
// line's start are dropped; a line over the limit is cut and flagged, in bounded memory. Owned by
// whoever reads the stream; one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace batchmill {

struct InputLine {
  std::uint64_t line = 0;  // 1-based number in the file, blank lines counted
  std::string bytes;  // without line end and byte order mark
  bool too_long = false;  // bytes hold the first 4 KiB only
  std::uint64_t end_offset_bytes = 0;  // content offset behind its LF
};

class LineSplitter {
 public:
  // `next_line`, `offset_bytes`: where the stream goes on (1 and 0 for a new one).
  LineSplitter(std::uint64_t max_line_bytes, std::uint64_t next_line, std::uint64_t offset_bytes);

  // Takes the next bytes, appends the lines they complete.
  void feed(std::string_view bytes, std::vector<InputLine>* lines);
  // The stream has ended: appends the last line if it had no LF.
  void finish(std::vector<InputLine>* lines);

  std::uint64_t offset_bytes() const { return offset_bytes_; }  // of all bytes fed
  bool at_line_start() const { return partial_.empty() && !skipping_; }

 private:
  void keep(std::string_view piece);  // a part of a line, without its LF
  void end_line(std::vector<InputLine>* lines);
  void add_line(std::string_view content, bool too_long, std::vector<InputLine>* lines);

  std::uint64_t max_line_bytes_;
  std::uint64_t next_line_;
  std::uint64_t offset_bytes_;
  std::string partial_;  // of the line that has not ended yet
  bool skipping_ = false;  // that line is over the limit
};

}  // namespace batchmill
