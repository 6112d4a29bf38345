// launch(kernel, grid, block, shared bytes, stream, arguments…): instead of <<<>>>. Arguments are
// converted to the kernel's parameter types and copied.
//
// launch_overlapped(): the kernel may begin before the work ahead of it in the stream has ended,
// and every thread of it calls wait_for_previous_kernel() once. All writes of earlier kernels are
// there when that returns.
#pragma once

#include <cstddef>

#include "cuda/devrt.h"
#include "cuda/stream.h"

#if defined(__CUDACC__)

#include "cuda/runtime/check.h"

namespace batchmill {

template <typename... P, typename... A>
void launch_with(bool overlapped, void (*kernel)(P...), dim3 grid, dim3 block,
                 std::size_t shared_bytes, StreamHandle stream, A... arguments) {
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
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = overlapped && kernels_can_wait() ? 1 : 0;
  check_cuda(cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...),
             "the launch of a kernel");
}

template <typename... P, typename... A>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared_bytes,
            StreamHandle stream, A... arguments) {
  launch_with(false, kernel, grid, block, shared_bytes, stream, arguments...);
}

template <typename... P, typename... A>
void launch_overlapped(void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared_bytes,
                       StreamHandle stream, A... arguments) {
  launch_with(true, kernel, grid, block, shared_bytes, stream, arguments...);
}

}  // namespace batchmill

#else

#include <tuple>
#include <utility>

#include "cuda/emulation/work_queue.h"

namespace batchmill {

template <typename... P, typename... A>
void launch_with(decltype(emulation::run_grid) run, void (*kernel)(P...), dim3 grid, dim3 block,
                 std::size_t shared_bytes, StreamHandle stream, A... arguments) {
  struct Call {
    void (*kernel)(P...);
    std::tuple<P...> arguments;
  };
  emulation::load_kernel(stream, reinterpret_cast<const void*>(kernel));
  const Call call{kernel, std::tuple<P...>(static_cast<P>(arguments)...)};
  emulation::enqueue(stream, [=] {
    Call own = call;
    run(
        grid, block, shared_bytes,
        [](void* pointer) {
          const auto* self = static_cast<const Call*>(pointer);
          std::apply(self->kernel, self->arguments);
        },
        &own);
  });
}

template <typename... P, typename... A>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared_bytes,
            StreamHandle stream, A... arguments) {
  launch_with(emulation::run_grid, kernel, grid, block, shared_bytes, stream, arguments...);
}

template <typename... P, typename... A>
void launch_overlapped(void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared_bytes,
                       StreamHandle stream, A... arguments) {
  launch_with(emulation::run_overlapped_grid, kernel, grid, block, shared_bytes, stream,
              arguments...);
}

}  // namespace batchmill

#endif
