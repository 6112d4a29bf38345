# cmake -DROOT=SOURCES -DOUTPUT=HEADER -P PluginHeaders.cmake: writes a header with a number that stands for
# the text of every header that program and plugin share: what cuda/plugin.h includes, and what that includes.
# The file is left alone if the number is the same.
cmake_minimum_required(VERSION 3.25)
set(waiting "cuda/plugin.h")
set(headers "")
while(waiting)
  list(POP_FRONT waiting header)
  if(header IN_LIST headers OR NOT EXISTS "${ROOT}/${header}")
    continue()
  endif()
  list(APPEND headers "${header}")
  file(STRINGS "${ROOT}/${header}" includes REGEX "^#include \"")
  list(TRANSFORM includes REPLACE "^#include \"([^\"]+)\".*" "\\1")
  list(APPEND waiting ${includes})
endwhile()
list(SORT headers)
set(text "")
foreach(header IN LISTS headers)
  file(SHA256 "${ROOT}/${header}" hash)
  string(APPEND text "${header} ${hash}\n")
endforeach()
string(SHA256 hash "${text}")
string(SUBSTRING "${hash}" 0 16 hash)
file(CONFIGURE OUTPUT "${OUTPUT}" @ONLY CONTENT
"// Made by tools/cmake/PluginHeaders.cmake.
#pragma once

#include <cstdint>

namespace batchmill {
inline constexpr std::uint64_t kPluginHeaders = 0x@hash@;
}
")
