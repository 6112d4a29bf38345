#include "cuda/gemm.h"

#include <cassert>

#include "cuda/bf16.h"
#include "cuda/emulation/work_queue.h"

namespace batchmill {
namespace {

struct Call {
  const std::uint16_t* weight;
  const std::uint16_t* input;
  Tensor output;
  const float* bias;
  std::int32_t in;
  bool accumulate;
};

void multiply(const Call& call) {
  constexpr std::int32_t kLanes = 16;  // sums side by side, so that the loop becomes vector code
  for (std::int32_t row = 0; row < call.output.rows; ++row) {
    const std::uint16_t* input = call.input + std::int64_t{row} * call.in;
    for (std::int32_t out = 0; out < call.output.cols; ++out) {
      const std::uint16_t* weight = call.weight + std::int64_t{out} * call.in;
      float sums[kLanes] = {};
      for (std::int32_t k = 0; k < call.in; k += kLanes) {
        for (std::int32_t i = 0; i < kLanes; ++i) {
          sums[i] += float_of(weight[k + i]) * float_of(input[k + i]);
        }
      }
      float sum = 0.0f;
      for (const float part : sums) sum += part;
      if (call.bias != nullptr) sum += call.bias[out];
      if (call.output.dtype == DType::kF32) {
        float& target = call.output.row<float>(row)[out];
        target = call.accumulate ? target + sum : sum;
      } else {
        call.output.row<std::uint16_t>(row)[out] = bf16_of(sum);
      }
    }
  }
}

}  // namespace

class CudaGemm::Impl {
 public:
  explicit Impl(CudaStream* queue) : stream(*queue) {}
  CudaStream& stream;
};

CudaGemm::CudaGemm(CudaStream* stream) : impl_(std::make_unique<Impl>(stream)) {}
CudaGemm::~CudaGemm() = default;

void CudaGemm::run(const Tensor& input, const CudaMatrix& weight, const Tensor& output,
                   bool accumulate) {
  assert(input.cols == weight.in_features() && output.cols == weight.out_features());
  assert(input.cols % 16 == 0 && (!accumulate || output.dtype == DType::kF32));
  // As cuBLASLt's heuristics take it for granted.
  for (const std::byte* data : {static_cast<const std::byte*>(input.data),
                                static_cast<const std::byte*>(weight.weights.data()),
                                static_cast<const std::byte*>(output.data)}) {
    if (reinterpret_cast<std::uintptr_t>(data) % 256 == 0) continue;
    throw CudaError("a matrix of a product that is not aligned to 256 bytes");
  }
  const Call call{
      static_cast<const std::uint16_t*>(weight.weights.data()),
      static_cast<const std::uint16_t*>(input.data),
      output.first_rows(input.rows),
      weight.bias_f32 == nullptr ? nullptr : static_cast<const float*>(weight.bias_f32->data()),
      input.cols,
      accumulate};
  emulation::enqueue(impl_->stream.handle(), [=] { multiply(call); });
}

std::string CudaGemm::describe() const { return "plain loops"; }

}  // namespace batchmill
