#include "engine/model_size.h"

#include <gtest/gtest.h>

#include "engine/model_files.h"

namespace batchmill {
namespace {

// The shapes that the models' makers publish.
ModelConfig llama3(std::int32_t hidden, std::int32_t inner, std::int32_t layers,
                   std::int32_t heads) {
  ModelConfig config;
  config.vocab_size = 128256;
  config.hidden_size = hidden;
  config.intermediate_size = inner;
  config.num_layers = layers;
  config.num_heads = heads;
  config.num_kv_heads = 8;
  config.head_dim = 128;
  config.max_context_tokens = 131072;
  config.layers.resize(static_cast<std::size_t>(layers));
  return config;
}

ModelConfig deepseek_v3() {
  ModelConfig config = llama3(7168, 18432, 61, 128);
  config.vocab_size = 129280;
  config.num_kv_heads = 128;
  config.head_dim = 192;
  config.latent = LatentAttention{
      .q_lora_rank = 1536, .kv_lora_rank = 512, .nope_dim = 128, .rope_dim = 64, .value_dim = 128};
  config.experts = ExpertConfig{.num_experts = 256,
                                .num_experts_per_token = 8,
                                .num_shared_experts = 1,
                                .intermediate_size = 2048};
  for (std::size_t i = 3; i < 61; ++i) config.layers[i].experts = true;
  return config;
}

TEST(ModelSizeTest, Llama3Of8Billion) {
  const ModelConfig config = llama3(4096, 14336, 32, 32);
  EXPECT_EQ(measure_model(config).parameters(), 8030261248);
  EXPECT_EQ(config.kv_bytes_per_token(2), 131072);
  EXPECT_EQ(kv_bytes_formula(config, 2), "2 × 32 layers × 8 heads × 128 × 2 bytes");
}

TEST(ModelSizeTest, Llama31Of70BillionAtItsWholeContext) {
  const ModelConfig config = llama3(8192, 28672, 80, 64);
  EXPECT_EQ(measure_model(config).parameters(), 70553706496);
  EXPECT_EQ(config.kv_bytes_per_token(2) * 131072, 42949672960);  // 42.9 GB
}

TEST(ModelSizeTest, DeepSeekV3KeepsOneLatentRowPerToken) {
  const ModelConfig config = deepseek_v3();
  EXPECT_EQ(measure_model(config).parameters(), 671026419200);
  EXPECT_NEAR(static_cast<double>(measure_model(config).active_parameters()), 37.5e9, 0.1e9);
  EXPECT_EQ(config.kv_bytes_per_token(2), 61 * (512 + 64) * 2);
  EXPECT_EQ(config.kv_bytes_per_token(2), 70272);
  EXPECT_EQ(kv_bytes_formula(config, 2), "61 layers × (512 + 64) × 2 bytes");
}

TEST(ModelSizeTest, Gpt2WithBiasesAndLearnedPositions) {
  ModelConfig config = llama3(768, 3072, 12, 12);
  config.vocab_size = 50257;
  config.num_kv_heads = 12;
  config.head_dim = 64;
  config.max_context_tokens = 1024;
  config.norm = NormKind::kLayer;
  config.gated_mlp = false;
  config.qkv_bias = config.attention_output_bias = config.mlp_bias = true;
  config.positions = PositionKind::kLearned;
  config.tied_embeddings = true;
  EXPECT_EQ(measure_model(config).parameters(), 124439808);
}

TEST(ModelSizeTest, Gemma3WithFourNormsALayer) {
  ModelConfig config = llama3(1152, 6912, 26, 4);
  config.vocab_size = 262144;
  config.num_kv_heads = 1;
  config.head_dim = 256;
  config.norm_placement = NormPlacement::kAround;
  config.qk_norm = true;
  config.tied_embeddings = true;
  EXPECT_EQ(measure_model(config).parameters(), 999885952);
}

TEST(ModelSizeTest, Qwen25WithBiasesOfQueriesKeysAndValues) {
  ModelConfig config = llama3(896, 4864, 24, 14);
  config.vocab_size = 151936;
  config.num_kv_heads = 2;
  config.head_dim = 64;
  config.qkv_bias = true;
  config.tied_embeddings = true;
  EXPECT_EQ(measure_model(config).parameters(), 494032768);
}

TEST(ModelSizeTest, AnEncoderHasNoHeadAndKeepsNothing) {
  ModelConfig config = llama3(384, 1536, 6, 12);  // MiniLM, without its pooling layer
  config.vocab_size = 30522;
  config.num_kv_heads = 12;
  config.head_dim = 32;
  config.max_context_tokens = 512;
  config.norm = NormKind::kLayer;
  config.norm_placement = NormPlacement::kAfter;
  config.gated_mlp = false;
  config.qkv_bias = config.attention_output_bias = config.mlp_bias = true;
  config.positions = PositionKind::kLearned;
  config.num_token_types = 2;
  config.embedding_norm = config.encoder = true;
  EXPECT_EQ(measure_model(config).parameters(), 22713216 - 384 * 385);
  EXPECT_EQ(config.kv_bytes_per_token(2), 0);
}

TEST(ModelSizeTest, CountsWhatTheFileHolds) {
  const ModelFiles files = read_gguf_model(BATCHMILL_TEST_DATA "/models/llama3/model-f16.gguf");
  std::int64_t elements = 0;
  for (const TensorInfo& tensor : files.tensors->tensors()) {
    if (tensor.name != "rope_freqs.weight") elements += tensor.rows * tensor.cols;
  }
  EXPECT_EQ(measure_model(files.config).parameters(), elements);
}

}  // namespace
}  // namespace batchmill
