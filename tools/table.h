// Rows of text in aligned columns, for people. One thread.
#pragma once

#include <string>
#include <vector>

namespace batchmill {

class Table {
 public:
  explicit Table(std::vector<std::string> header);

  // Cells are shown as printable() has them.
  void add(std::vector<std::string> row);
  // Columns of numbers are aligned to the right. Ends with a newline.
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace batchmill
