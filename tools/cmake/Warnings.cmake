# Compile options of batchmill's own targets. Third-party headers are SYSTEM, so they are exempt.
add_library(batchmill_options INTERFACE)
target_compile_options(batchmill_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion
  -Wno-sign-conversion -Wnon-virtual-dtor -Woverloaded-virtual -Werror
  # g++ 12 sees overlapping copies in "text" + std::string where there are none.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)

if(BATCHMILL_FUZZ)
  # Findings end the process; coverage is what libFuzzer searches by.
  set(fuzz_options -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all)
  target_compile_options(batchmill_options INTERFACE ${fuzz_options} -fno-omit-frame-pointer)
  target_link_options(batchmill_options INTERFACE ${fuzz_options})
endif()

if(BATCHMILL_SANITIZE)
  target_compile_options(batchmill_options INTERFACE -fsanitize=${BATCHMILL_SANITIZE}
    -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(batchmill_options INTERFACE -fsanitize=${BATCHMILL_SANITIZE})
endif()
