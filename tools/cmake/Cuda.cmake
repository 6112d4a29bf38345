# The CUDA language if the toolkit is here, and emulated CUDA if Boost.Context is. Neither is needed to
# build everything else; what is skipped is said when the build is configured, and by tests.
set(BATCHMILL_CUDA AUTO CACHE STRING
  "The CUDA backend and its tests. AUTO: what can be built here; ON: all of it, or an error; OFF: none")
set_property(CACHE BATCHMILL_CUDA PROPERTY STRINGS AUTO ON OFF)
set(BATCHMILL_HAS_CUDA FALSE)
set(BATCHMILL_HAS_EMULATION FALSE)

# skip_cuda(CUDA|EMULATION WHY): says what is not built, and makes BATCHMILL_WHY_NO_… the reason.
function(skip_cuda what why)
  if(BATCHMILL_CUDA STREQUAL "ON")
    message(FATAL_ERROR "BATCHMILL_CUDA=ON, but ${why}")
  endif()
  set(name "CUDA")
  if(what STREQUAL "EMULATION")
    set(name "emulated CUDA")
  endif()
  message(STATUS "${name}: skipped, ${why}")
  set(BATCHMILL_WHY_NO_${what} "${why}" PARENT_SCOPE)
endfunction()

if(BATCHMILL_FUZZ)
  return()
endif()
if(BATCHMILL_CUDA STREQUAL "OFF")
  skip_cuda(CUDA "BATCHMILL_CUDA=OFF")
  skip_cuda(EMULATION "BATCHMILL_CUDA=OFF")
  return()
endif()

if(BATCHMILL_SANITIZE)
  skip_cuda(CUDA "a build with sanitizers")
else()
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND EXISTS /usr/local/cuda/bin/nvcc)
    set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
  endif()
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    skip_cuda(CUDA "no CUDA toolkit (nvcc)")
  endif()
endif()
if(CMAKE_CUDA_COMPILER AND NOT BATCHMILL_SANITIZE)
  # Code for H100 and H200, and PTX for what came before and comes after.
  set(CMAKE_CUDA_ARCHITECTURES 90-real 80-virtual)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  if(CCACHE_PROGRAM)
    set(CMAKE_CUDA_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  set(BATCHMILL_HAS_CUDA TRUE)
  # CMake 3.25 does not know how to ask for C++20.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  set(BATCHMILL_CUDA_OPTIONS -Werror=all-warnings -Xcompiler=-Wall,-Wextra)
endif()

if(BATCHMILL_BUILD_TESTS)
  find_package(Boost QUIET COMPONENTS context)
  set(BATCHMILL_HAS_EMULATION ${Boost_FOUND})
  if(NOT BATCHMILL_HAS_EMULATION)
    skip_cuda(EMULATION "no libboost-context-dev")
  endif()
endif()

set(BATCHMILL_KERNEL_SOURCES
  activation_kernels.cu
  attention_kernels.cu
  attention_narrow_bytes_kernels.cu
  attention_narrow_kernels.cu
  attention_wide_bytes_kernels.cu
  attention_wide_kernels.cu
  norm_kernels.cu
  product_kernels.cu
  rotary_kernels.cu
  row_kernels.cu
  sampler_kernels.cu
)
list(TRANSFORM BATCHMILL_KERNEL_SOURCES PREPEND "${PROJECT_SOURCE_DIR}/cuda/")
set(BATCHMILL_CUDA_HOST_SOURCES
  cuda_backend.cpp
  device_draws.cpp
  step_arrays.cpp
)
list(TRANSFORM BATCHMILL_CUDA_HOST_SOURCES PREPEND "${PROJECT_SOURCE_DIR}/cuda/")
set(BATCHMILL_EMULATION_SOURCES
  attention_plan.cpp
  emulation/block_runner.cpp
  emulation/devices.cpp
  emulation/overlap.cpp
  emulation/stream.cpp
  sample_rows.cpp
)
list(TRANSFORM BATCHMILL_EMULATION_SOURCES PREPEND "${PROJECT_SOURCE_DIR}/cuda/")

# batchmill_emulated_cuda(NAME [SANITIZERS]): a static library of all of cuda/ on emulated threads; with
# sanitizers of the kernels alone. Of the calling directory, because languages of sources are.
function(batchmill_emulated_cuda name)
  set(sanitizers "${BATCHMILL_SANITIZE}")
  add_library(${name} STATIC ${BATCHMILL_KERNEL_SOURCES} ${BATCHMILL_EMULATION_SOURCES})
  if(ARGC GREATER 1)
    set(sanitizers "${ARGV1}")
    # -w: instrumented code brings warnings of its own; the same sources are compiled without.
    target_compile_options(${name} PUBLIC -fsanitize=${ARGV1} -fno-sanitize-recover=all -g1 -O1
      -fno-omit-frame-pointer -w)
    target_link_options(${name} PUBLIC -fsanitize=${ARGV1})
  else()
    target_sources(${name} PRIVATE ${BATCHMILL_CUDA_HOST_SOURCES}
      "${PROJECT_SOURCE_DIR}/cuda/emulation/gemm.cpp")
  endif()
  set_source_files_properties(${BATCHMILL_KERNEL_SOURCES} PROPERTIES LANGUAGE CXX)
  # What these files do to lanes' memory, hardware does: they are not instrumented.
  set_source_files_properties("${PROJECT_SOURCE_DIR}/cuda/emulation/block_runner.cpp"
    "${PROJECT_SOURCE_DIR}/cuda/emulation/overlap.cpp" PROPERTIES COMPILE_OPTIONS -fno-sanitize=all)
  if(sanitizers MATCHES address)
    target_compile_definitions(${name} PRIVATE BATCHMILL_SANITIZE_ADDRESS)
  elseif(sanitizers MATCHES thread)
    target_compile_definitions(${name} PRIVATE BATCHMILL_SANITIZE_THREAD)
  endif()
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${name} PUBLIC -Wno-unknown-pragmas)
  target_link_libraries(${name} PRIVATE batchmill_options PUBLIC Boost::context)
endfunction()
