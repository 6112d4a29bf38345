// Makes a file's name as durable as its content.
#pragma once

#include <string>

namespace batchmill {

// Syncs the directory of `path`: a power cut does not undo the making or renaming of the file any
// more. False, with errno, when that failed.
bool make_name_durable(const std::string& path);

}  // namespace batchmill
