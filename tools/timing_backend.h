// A backend that does another one's work and counts the arithmetic of its parts and, if it is asked
// to, their time. For `bench`; while it takes times, the inner backend does one operation after the
// other, each at once. One thread.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "engine/forwarding_backend.h"

namespace batchmill {

struct OperationSums {
  double seconds = 0.0;
  double operations = 0.0;  // multiplications and additions
  double kv_bytes = 0.0;  // attention: keys and values that the rows look at

  void add(const OperationSums& other) {
    seconds += other.seconds;
    operations += other.operations;
    kv_bytes += other.kv_bytes;
  }
};

// What a step is made of.
enum class StepPiece : std::uint8_t {
  kProducts,  // of the layers
  kVocabulary,  // the product that gives logits
  kAttention,
  kRotation,  // rotating queries and keys, storing keys and values
  kNorms,
  kActivation,
};
inline constexpr std::size_t kNumStepPieces = 6;

// Owned by the caller; outlives the backend.
struct BackendSums {
  bool takes_times = false;  // set by the owner
  std::array<OperationSums, kNumStepPieces> pieces;
  // By (outputs, inputs) of a layer's matrix: all rows that went through it.
  std::map<std::pair<std::int32_t, std::int32_t>, OperationSums> products;

  OperationSums& of(StepPiece piece) { return pieces[static_cast<std::size_t>(piece)]; }
  const OperationSums& of(StepPiece piece) const { return pieces[static_cast<std::size_t>(piece)]; }
  OperationSums gemm() const;  // products of layers and vocabulary
  void add(const BackendSums& other);
  void clear();
};

class TimingBackend : public ForwardingBackend {
 public:
  // `vocab_size`: tells the product that gives logits.
  TimingBackend(std::unique_ptr<Backend> inner, std::int32_t vocab_size, BackendSums* sums)
      : ForwardingBackend(std::move(inner)), vocab_size_(vocab_size), sums_(sums) {}

  void begin_step(const Batch& batch, const HeadShape& heads) override;
  void rotation_table(const Rotation& rotation, const Tensor& output) override;
  void norm(const Tensor& input, const Norm& norm, const Tensor& output) override;
  void norm_add(const Tensor& input, const Norm& norm, const Tensor& sum) override;
  void matmul(const Tensor& input, const Matrix& weight, const Tensor& output) override;
  bool matmul_to_host(const Tensor& input, const Matrix& weight, std::span<float> host,
                      LogitsScan* scan) override;
  void matmul_add(const Tensor& input, const Matrix& weight, const Tensor& sum) override;
  void rotate_and_store(const Tensor& qkv, const HeadNorms& norms, const Tensor& rotations,
                        const KvCache& cache, std::int32_t layer) override;
  void attention(const Tensor& qkv, const KvCache& cache, std::int32_t layer,
                 const AttentionRule& rule, const Tensor& output) override;
  void activate(Activation activation, const Tensor& input, const Tensor& output) override;

 private:
  // Does the work; returns what it took, or 0.
  double timed(const auto& work);
  void count_product(const Tensor& input, const Matrix& weight, double seconds);

  std::int32_t vocab_size_;
  BackendSums* sums_;
  // Of one layer of the current step: operations of attention and KV tokens that sequences look at,
  // each once.
  struct AttentionWork {
    double operations = 0.0;
    double tokens = 0.0;
  };
  AttentionWork all_rows_;
  AttentionWork logits_rows_;
};

}  // namespace batchmill
