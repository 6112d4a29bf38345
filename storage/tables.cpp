// Which table files of a store hold what was written.
#include <rocksdb/options.h>
#include <rocksdb/sst_file_reader.h>
#include <rocksdb/table_properties.h>

#include <algorithm>
#include <filesystem>

#include "storage/store_care.h"

namespace batchmill {

TableReport check_tables(const std::string& store_directory) {
  namespace fs = std::filesystem;
  TableReport report;
  std::vector<fs::path> tables;
  std::error_code error;
  for (fs::directory_iterator it(store_directory, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() == ".sst") tables.push_back(it->path());
  }
  std::ranges::sort(tables);
  for (const fs::path& table : tables) {
    ++report.tables;
    rocksdb::SstFileReader reader{rocksdb::Options()};
    rocksdb::Status status = reader.Open(table);
    std::string family;
    if (status.ok()) {
      if (const auto properties = reader.GetTableProperties()) {
        family = properties->column_family_name;
      }
      status = reader.VerifyChecksum();
    }
    if (!status.ok()) {
      report.damaged.push_back({table.filename(), std::move(family), status.ToString()});
    }
  }
  return report;
}

}  // namespace batchmill
