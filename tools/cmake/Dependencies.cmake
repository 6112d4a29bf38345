# Everything batchmill links, from Debian bookworm's packages.
find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(tomlplusplus REQUIRED)
if(NOT BATCHMILL_FUZZ)
  find_package(RocksDB REQUIRED)
  find_package(dnnl REQUIRED)
  find_package(OpenMP REQUIRED COMPONENTS CXX)
  find_package(CAF 0.17.6 REQUIRED COMPONENTS core io)
endif()

find_package(PkgConfig REQUIRED)
pkg_check_modules(ZeroMQ REQUIRED IMPORTED_TARGET libzmq)
# Debian's libzmq.pc lists include folders of its own static dependencies, in one way when the cache is
# made and in another when it is read: without this every second configure would recompile its users.
set_target_properties(PkgConfig::ZeroMQ PROPERTIES
  INTERFACE_INCLUDE_DIRECTORIES "" INTERFACE_COMPILE_OPTIONS "")
pkg_check_modules(Zstd REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(XxHash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(Utf8proc REQUIRED IMPORTED_TARGET libutf8proc)

if(BATCHMILL_BUILD_TESTS AND NOT BATCHMILL_FUZZ)
  find_package(GTest REQUIRED)
endif()
