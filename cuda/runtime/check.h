// Turns a status of the CUDA runtime into an exception. Of cuda/runtime/ and launches.
#pragma once

#include <cuda_runtime_api.h>

namespace batchmill {

// Throws CudaError saying what failed.
void check_cuda(cudaError_t status, const char* what);

}  // namespace batchmill
