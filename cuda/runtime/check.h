// Turns a status of the CUDA runtime into an exception. Of cuda/runtime/ and launches.
#pragma once

#include <cuda_runtime_api.h>

namespace batchmill {

// Throws CudaError saying what failed.
void check_cuda(cudaError_t status, const char* what);

// Whether kernels can begin early and wait for those before them: of the code in this build, that
// for compute capability 9.x can.
bool kernels_can_wait();

}  // namespace batchmill
