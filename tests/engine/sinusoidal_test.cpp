// A model with sinusoidal positions computes what one does that has learned the reference's table
// of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/cpu/cpu_runner.h"
#include "engine/model_files.h"
#include "tests/engine/scripted_sequences.h"

namespace batchmill {
namespace {

constexpr const char* kPositions = "position_embd.weight";

// The tensors of a model, with another table of positions or none.
class ReplacedPositions : public TensorSource {
 public:
  ReplacedPositions(const TensorSource& inner, std::vector<std::vector<float>> rows)
      : inner_(inner), rows_(std::move(rows)) {
    for (TensorInfo tensor : inner.tensors()) {
      if (tensor.name == kPositions) {
        if (rows_.empty()) continue;
        tensor.rows = static_cast<std::int64_t>(rows_.size());
      }
      infos_.push_back(tensor);
    }
  }

  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  const TensorInfo* find(std::string_view name) const override {
    const auto found = std::find_if(infos_.begin(), infos_.end(),
                                    [&](const TensorInfo& info) { return info.name == name; });
    return found == infos_.end() ? nullptr : &*found;
  }
  void read_row(const TensorInfo& tensor, std::int64_t row, float* output) const override {
    if (tensor.name == kPositions) {
      std::copy(rows_[static_cast<std::size_t>(row)].begin(),
                rows_[static_cast<std::size_t>(row)].end(), output);
    } else {
      inner_.read_row(*inner_.find(tensor.name), row, output);
    }
  }
  void release(const TensorInfo&) const override {}
  const std::string& path() const override { return inner_.path(); }

 private:
  const TensorSource& inner_;
  std::vector<std::vector<float>> rows_;
  std::vector<TensorInfo> infos_;
};

std::vector<std::vector<float>> run(const TensorSource& tensors, const ModelConfig& config) {
  CpuOptions options;
  options.dtype = CpuDType::kF32;
  options.threads = 1;
  options.block_size_tokens = 16;
  options.num_blocks = 8;
  const auto runner = make_cpu_runner(tensors, config, options);
  testing::ScriptedSequences sequences(runner.get(), 1);
  std::vector<TokenId> tokens;
  for (TokenId i = 0; i < 40; ++i) tokens.push_back(3 + i * 7 % 300);
  sequences.add(tokens);
  return sequences.step({40});
}

TEST(SinusoidalTest, IsAModelThatLearnedTheReferencesTable) {
  const ModelFiles model = read_model_folder(std::string(BATCHMILL_TEST_DATA) + "/models/gpt2");
  std::ifstream file(BATCHMILL_TEST_DATA "/positions/positions.json");
  const auto table =
      nlohmann::json::parse(file)["sinusoids"]["rows"].get<std::vector<std::vector<float>>>();
  ModelConfig config = model.config;
  config.max_context_tokens = static_cast<std::int32_t>(table.size());
  const auto learned = run(ReplacedPositions(*model.tensors, table), config);
  config.positions = PositionKind::kSinusoidal;
  const auto sinusoidal = run(ReplacedPositions(*model.tensors, {}), config);
  config.positions = PositionKind::kLearned;
  const std::vector<std::vector<float>> zeros(table.size(), std::vector<float>(table[0].size()));
  const auto without = run(ReplacedPositions(*model.tensors, zeros), config);
  double largest = 0;
  for (std::size_t i = 0; i < learned.size(); ++i) {
    for (std::size_t j = 0; j < learned[i].size(); ++j) {
      ASSERT_NEAR(sinusoidal[i][j], learned[i][j], 2e-5) << i << " " << j;
      largest = std::max(largest, double{std::abs(without[i][j] - learned[i][j])});
    }
  }
  EXPECT_GT(largest, 0.5);  // positions matter
}

}  // namespace
}  // namespace batchmill
