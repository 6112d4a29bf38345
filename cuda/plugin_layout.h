// Whether a program and a plugin are of one build, as far as C++ objects cross between them.
#pragma once

#include <cstdint>

#include "cuda/plugin.h"
#include "cuda/plugin_headers.h"

namespace batchmill {

// Changes with the text of the headers that both include (virtual functions, members and their
// order), with the sizes that these give, and with the compiler.
constexpr std::uint64_t cuda_plugin_layout() {
  std::uint64_t layout = kPluginHeaders;
  const auto mix = [&](std::uint64_t part) { layout = layout * 1099511628211u + part; };
  for (const char* character = __VERSION__; *character != '\0'; ++character) {
    mix(static_cast<unsigned char>(*character));
  }
  for (const std::uint64_t part :
       {sizeof(Batch), sizeof(Tensor), sizeof(KvCacheShape), sizeof(HeadShape), sizeof(Norm),
        sizeof(HeadNorms), sizeof(Rotation), sizeof(AttentionRule), sizeof(Experts), sizeof(Draw),
        sizeof(SamplingParams)}) {
    mix(part);
  }
  return layout;
}

}  // namespace batchmill
