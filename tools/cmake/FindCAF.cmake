# Finds CAF (C++ Actor Framework). Debian's libcaf-dev ships no CMake package.
# Components: core, io, openssl. Defines CAF::<component> and CAF_VERSION.
find_path(CAF_INCLUDE_DIR caf/all.hpp)
mark_as_advanced(CAF_INCLUDE_DIR)

if(CAF_INCLUDE_DIR)
  file(STRINGS "${CAF_INCLUDE_DIR}/caf/config.hpp" CAF_VERSION_LINE REGEX "#define CAF_VERSION [0-9]+")
  string(REGEX REPLACE ".*CAF_VERSION ([0-9]+).*" "\\1" CAF_VERSION_NUMBER "${CAF_VERSION_LINE}")
  math(EXPR CAF_VERSION_MAJOR "${CAF_VERSION_NUMBER} / 10000")
  math(EXPR CAF_VERSION_MINOR "${CAF_VERSION_NUMBER} / 100 % 100")
  math(EXPR CAF_VERSION_PATCH "${CAF_VERSION_NUMBER} % 100")
  set(CAF_VERSION "${CAF_VERSION_MAJOR}.${CAF_VERSION_MINOR}.${CAF_VERSION_PATCH}")
endif()

foreach(component IN LISTS CAF_FIND_COMPONENTS)
  find_library(CAF_${component}_LIBRARY caf_${component})
  mark_as_advanced(CAF_${component}_LIBRARY)
  if(CAF_${component}_LIBRARY)
    set(CAF_${component}_FOUND TRUE)
  endif()
endforeach()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CAF REQUIRED_VARS CAF_INCLUDE_DIR VERSION_VAR CAF_VERSION
  HANDLE_COMPONENTS)

if(CAF_FOUND)
  foreach(component IN LISTS CAF_FIND_COMPONENTS)
    if(NOT TARGET CAF::${component})
      add_library(CAF::${component} UNKNOWN IMPORTED)
      set_target_properties(CAF::${component} PROPERTIES
        IMPORTED_LOCATION "${CAF_${component}_LIBRARY}"
        INTERFACE_INCLUDE_DIRECTORIES "${CAF_INCLUDE_DIR}"
        INTERFACE_LINK_LIBRARIES Threads::Threads)
      if(NOT component STREQUAL "core")
        set_property(TARGET CAF::${component} APPEND PROPERTY INTERFACE_LINK_LIBRARIES CAF::core)
      endif()
    endif()
  endforeach()
endif()
