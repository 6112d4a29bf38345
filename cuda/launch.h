// launch(kernel, grid, block, shared bytes, stream, arguments…): instead of <<<>>>. Arguments are
// converted to the kernel's parameter types and copied.
#pragma once

#include <cstddef>

#include "cuda/devrt.h"
#include "cuda/stream.h"

#if defined(__CUDACC__)

#include "cuda/runtime/check.h"

namespace batchmill {

template <typename... P, typename... A>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared_bytes,
            StreamHandle stream, A... arguments) {
  if (shared_bytes > 48 * 1024) {
    check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                    cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shared_bytes)),
               "shared memory of a kernel");
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  check_cuda(cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...),
             "the launch of a kernel");
}

}  // namespace batchmill

#else

#include <tuple>
#include <utility>

#include "cuda/emulation/work_queue.h"

namespace batchmill {

template <typename... P, typename... A>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared_bytes,
            StreamHandle stream, A... arguments) {
  struct Call {
    void (*kernel)(P...);
    std::tuple<P...> arguments;
  };
  const Call call{kernel, std::tuple<P...>(static_cast<P>(arguments)...)};
  emulation::enqueue(stream, [=] {
    Call own = call;
    emulation::run_grid(
        grid, block, shared_bytes,
        [](void* pointer) {
          const auto* self = static_cast<const Call*>(pointer);
          std::apply(self->kernel, self->arguments);
        },
        &own);
  });
}

}  // namespace batchmill

#endif
