#include "cuda/gemm.h"

#include <cublasLt.h>

#include <map>
#include <stdexcept>
#include <tuple>

namespace batchmill {
namespace {

// What cuBLASLt advises for compute capability 9.0.
constexpr std::size_t kWorkspaceBytes = 32 << 20;

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw CudaError(std::string(what) + ": " + cublasLtGetStatusName(status));
}

cudaDataType_t type_of(DType dtype) { return dtype == DType::kF32 ? CUDA_R_32F : CUDA_R_16BF; }

// A kind of product: what cuBLASLt needs to know of it, and the algorithm it chose.
class Product {
 public:
  Product(cublasLtHandle_t handle, int out, int in, int rows, DType output, bool has_bias) {
    check(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "a product");
    set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    if (has_bias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(output));
    }
    // Column-major: output [out, rows] = weight [in, out]ᵀ × input [in, rows].
    check(cublasLtMatrixLayoutCreate(&weight_, CUDA_R_16BF, in, out, in), "a weight's layout");
    check(cublasLtMatrixLayoutCreate(&input_, CUDA_R_16BF, in, rows, in), "an input's layout");
    check(cublasLtMatrixLayoutCreate(&output_, type_of(output), out, rows, out),
          "an output's layout");
    choose_algorithm(handle);
  }
  ~Product() {
    cublasLtMatrixLayoutDestroy(output_);
    cublasLtMatrixLayoutDestroy(input_);
    cublasLtMatrixLayoutDestroy(weight_);
    cublasLtMatmulDescDestroy(operation_);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  void run(cublasLtHandle_t handle, const void* weight, const void* input, void* output,
           const void* bias, bool accumulate, const CudaBuffer& workspace, StreamHandle stream) {
    if (bias != nullptr) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    const float one = 1.0f;
    const float keep = accumulate ? 1.0f : 0.0f;
    check(cublasLtMatmul(handle, operation_, &one, weight, weight_, input, input_, &keep, output,
                         output_, output, output_, &algorithm_, workspace.data(),
                         workspace.size_bytes(), stream),
          "a matrix product");
  }

 private:
  template <typename T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    check(cublasLtMatmulDescSetAttribute(operation_, attribute, &value, sizeof(value)),
          "an attribute of a product");
  }

  void choose_algorithm(cublasLtHandle_t handle) {
    cublasLtMatmulPreference_t preference = nullptr;
    check(cublasLtMatmulPreferenceCreate(&preference), "a preference");
    const std::size_t bytes = kWorkspaceBytes;
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &bytes, sizeof(bytes));
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle, operation_, weight_, input_, output_, output_, preference, 1, &best, &found);
    cublasLtMatmulPreferenceDestroy(preference);
    check(status, "an algorithm for a matrix product");
    if (found == 0) throw CudaError("cuBLASLt has no algorithm for a matrix product");
    algorithm_ = best.algo;
  }

  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t weight_ = nullptr;
  cublasLtMatrixLayout_t input_ = nullptr;
  cublasLtMatrixLayout_t output_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
};

}  // namespace

class CudaGemm::Impl {
 public:
  explicit Impl(CudaStream* stream) : stream_(*stream), workspace_(kWorkspaceBytes) {
    check(cublasLtCreate(&handle_), "cuBLASLt");
  }
  ~Impl() {
    products_.clear();
    cublasLtDestroy(handle_);
  }

  void run(const Tensor& input, const CudaMatrix& weight, const Tensor& output, bool accumulate) {
    const bool has_bias = weight.bias_f32 != nullptr;
    const Key key{weight.out_features(), weight.in_features(), input.rows, output.dtype, has_bias};
    auto& product = products_[key];
    if (product == nullptr) {
      product = std::make_unique<Product>(handle_, weight.out_features(), weight.in_features(),
                                          input.rows, output.dtype, has_bias);
    }
    const void* bias = nullptr;
    if (has_bias) {
      bias = (output.dtype == DType::kF32 ? weight.bias_f32 : weight.bias_bf16)->data();
    }
    product->run(handle_, weight.weights.data(), input.data, output.data, bias, accumulate,
                 workspace_, stream_.handle());
  }

 private:
  using Key = std::tuple<int, int, int, DType, bool>;
  CudaStream& stream_;
  CudaBuffer workspace_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, std::unique_ptr<Product>> products_;
};

CudaGemm::CudaGemm(CudaStream* stream) : impl_(std::make_unique<Impl>(stream)) {}
CudaGemm::~CudaGemm() = default;

void CudaGemm::run(const Tensor& input, const CudaMatrix& weight, const Tensor& output,
                   bool accumulate) {
  impl_->run(input, weight, output, accumulate);
}

std::string CudaGemm::describe() const {
  return "cuBLASLt " + std::to_string(cublasLtGetVersion());
}

}  // namespace batchmill
