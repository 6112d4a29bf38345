// CpuBackend's mixture of experts: every expert multiplies the rows that chose it in one product.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/cpu/cpu_backend.h"

namespace batchmill {

void CpuBackend::route(const Tensor& input, const Experts& experts) {
  const auto widen = kernels_.widen[index_of(input.dtype)];
  const std::int32_t num_experts = experts.config.num_experts;
  choices_.resize(static_cast<std::size_t>(input.rows));
  struct Work {
    std::vector<float> row;
    std::vector<float> scores;
  };
  std::vector<Work> works(static_cast<std::size_t>(num_threads_),
                          {std::vector<float>(static_cast<std::size_t>(input.cols)),
                           std::vector<float>(static_cast<std::size_t>(num_experts))});
  const auto choose = [&](std::int32_t i, std::int32_t thread) {
    auto& [row, scores] = works[static_cast<std::size_t>(thread)];
    widen(row_of(input, i), input.cols, 1.0f, row.data());
    for (std::int32_t e = 0; e < num_experts; ++e) {
      const float logit = kernels_.dot(row.data(), experts.router.row<float>(e), input.cols);
      scores[static_cast<std::size_t>(e)] = 1.0f / (1.0f + std::exp(-logit));
    }
    choose_experts(experts.config, scores, {experts.choice_bias.row<float>(0), scores.size()},
                   &choices_[static_cast<std::size_t>(i)]);
  };
  team_.divide(threads_for(input.rows, num_experts * input.cols), input.rows, choose);
}

void CpuBackend::add_experts(const Tensor& input, const Experts& experts, Activation activation,
                             const Tensor& sum) {
  finish();
  route(input, experts);
  const std::int32_t per_row = experts.config.num_experts_per_token;
  const std::int32_t num_slots = input.rows * per_row;
  const std::int32_t inner = experts.config.intermediate_size;
  const DType act = activation_dtype();

  // Rows of the experts one after the other; products may write behind an expert's last row, where
  // the next one's rows come later.
  Tensor gathered{nullptr, act, padded_rows(input.rows), input.cols};
  Tensor gate_up{nullptr, act, padded_rows(input.rows), 2 * inner};
  Tensor mlp{nullptr, act, padded_rows(input.rows), inner};
  Tensor results{nullptr, DType::kF32, num_slots + padded_rows(input.rows), sum.cols};
  std::size_t bytes = 0;
  std::size_t offsets[4];
  Tensor* const parts[4] = {&gathered, &gate_up, &mlp, &results};
  for (int i = 0; i < 4; ++i) {
    offsets[i] = bytes;
    bytes += (parts[i]->bytes() + 63) / 64 * 64;
  }
  std::byte* memory = reserve_work(bytes);
  for (int i = 0; i < 4; ++i) parts[i]->data = memory + offsets[i];

  slots_.assign(static_cast<std::size_t>(num_slots), 0);
  std::int32_t first_slot = 0;
  for (std::int32_t e = 0; e < experts.config.num_experts; ++e) {
    std::int32_t count = 0;
    for (std::int32_t i = 0; i < input.rows; ++i) {
      const std::vector<ExpertChoice>& choices = choices_[static_cast<std::size_t>(i)];
      for (std::int32_t c = 0; c < per_row; ++c) {
        if (choices[static_cast<std::size_t>(c)].expert != e) continue;
        std::memcpy(row_of(gathered, count), row_of(input, i), input.row_bytes());
        slots_[static_cast<std::size_t>(i * per_row + c)] = first_slot + count;
        ++count;
      }
    }
    if (count == 0) continue;
    const auto index = static_cast<std::size_t>(e);
    matmul(gathered.first_rows(count), *experts.gate_up[index], gate_up.first_rows(count));
    activate(activation, gate_up.first_rows(count), mlp.first_rows(count));
    matmul(mlp.first_rows(count), *experts.down[index],
           {row_of(results, first_slot), DType::kF32, count, sum.cols});
    finish();
    first_slot += count;
  }

  // In the experts' order, whoever shares the step.
  divide_now(sum.rows, per_row * sum.cols, [&](std::int32_t i) {
    for (std::int32_t c = 0; c < per_row; ++c) {
      const std::int32_t slot = slots_[static_cast<std::size_t>(i * per_row + c)];
      const float weight =
          choices_[static_cast<std::size_t>(i)][static_cast<std::size_t>(c)].weight;
      kernels_.add_row(results.row<float>(slot), sum.cols, weight, sum.row<float>(i));
    }
  });
}

}  // namespace batchmill
