// A plugin of another build: nothing of it may be called.
#include <cstdlib>

#include "cuda/plugin_layout.h"

namespace {

constexpr BatchmillCudaPlugin kPlugin = {
    batchmill::kCudaAbiVersion,
    batchmill::cuda_plugin_layout() + 1,
    [](char*, std::size_t) -> std::int32_t { std::abort(); },
    [](std::int32_t, BatchmillCudaFacts*, char*, std::size_t) -> std::int32_t { std::abort(); },
    [](std::int32_t, char*, std::size_t) -> void* { std::abort(); },
    [](void*) { std::abort(); }};

}  // namespace

extern "C" const BatchmillCudaPlugin* batchmill_cuda_plugin() { return &kPlugin; }
