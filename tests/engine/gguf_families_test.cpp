// What the keys of each architecture's GGUF files mean.
#include "engine/gguf_families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "engine/gguf_config.h"
#include "tests/engine/gguf_builder.h"
#include "tests/engine/temporary_file.h"

namespace batchmill {
namespace {

using ::testing::HasSubstr;
using B = testing::GgufBuilder;

// The metadata of a model of 64 tokens × 64.
class Metadata {
 public:
  explicit Metadata(const std::string& architecture) : prefix_(architecture + ".") {
    builder_.string("general.architecture", architecture);
    builder_.tensor("token_embd.weight", {64, 64}, 0, 0);
    builder_.data.assign(64 * 64 * 4, '\0');
    num("block_count", 6).num("context_length", 256).num("embedding_length", 64);
    num("feed_forward_length", 128).num("attention.head_count", 4);
  }

  Metadata& num(const std::string& key, std::uint32_t value) {
    builder_.uint32(prefix_ + key, value);
    return *this;
  }
  Metadata& real(const std::string& key, float value) {
    builder_.key(prefix_ + key, GgufType::kFloat32, B::number(value));
    return *this;
  }
  Metadata& flag(const std::string& key, bool value) {
    builder_.key(prefix_ + key, GgufType::kBool, std::string(1, value ? '\1' : '\0'));
    return *this;
  }
  Metadata& text(const std::string& key, const std::string& value) {
    builder_.string(prefix_ + key, value);
    return *this;
  }

  ModelConfig read() const {
    const testing::TemporaryFile file(builder_.bytes());
    return read_model_config(GgufFile(file.path()));
  }
  std::string error() const {
    try {
      (void)read();
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  }

 private:
  std::string prefix_;
  B builder_;
};

Metadata deepseek() {
  Metadata m("deepseek2");
  m.num("leading_dense_block_count", 2).num("attention.q_lora_rank", 32);
  m.num("attention.kv_lora_rank", 48).num("rope.dimension_count", 16);
  m.num("expert_count", 8).num("expert_used_count", 2).num("expert_shared_count", 1);
  m.num("expert_feed_forward_length", 32).num("expert_group_count", 4);
  m.num("expert_group_used_count", 2).flag("expert_weights_norm", true);
  m.real("expert_weights_scale", 2.5f);
  m.text("rope.scaling.type", "yarn").real("rope.scaling.factor", 40.0f);
  m.num("rope.scaling.original_context_length", 64);
  m.real("rope.scaling.yarn_log_multiplier", 0.1f);
  return m;
}

TEST(GgufFamiliesTest, ReadsLatentAttentionAndExperts) {
  const ModelConfig config = deepseek()
                                 .num("expert_gating_func", 2)
                                 .num("attention.key_length", 64)
                                 .num("attention.value_length", 48)
                                 .num("attention.key_length_mla", 32)
                                 .num("attention.value_length_mla", 24)
                                 .read();
  EXPECT_EQ(config.latent, (LatentAttention{32, 48, 16, 16, 24}));
  EXPECT_EQ(config.experts, (ExpertConfig{8, 2, 1, 32, 4, 2, true, 2.5f}));
  EXPECT_FALSE(config.layers[1].experts);
  EXPECT_TRUE(config.layers[2].experts);
  EXPECT_EQ(config.kv_bytes_per_token(2), 6 * (48 + 16) * 2);
  // Cosine and sine keep their length, the softmax scale takes the magnitude.
  EXPECT_NEAR(config.ropes[0].attention_factor, 1.0f, 1e-6);
  const double magnitude = 0.1 * std::log(40.0) + 1.0;
  EXPECT_NEAR(config.attention_scale, magnitude * magnitude / std::sqrt(32.0), 1e-6);

  // Files from before attention was absorbed, without the keys that came later.
  const ModelConfig older = deepseek()
                                .num("expert_gating_func", 2)
                                .num("attention.key_length", 32)
                                .num("attention.value_length", 24)
                                .read();
  EXPECT_EQ(older.latent, config.latent);
  EXPECT_THAT(deepseek().num("attention.key_length", 32).num("attention.value_length", 24).error(),
              HasSubstr("softmax scores"));
}

TEST(GgufFamiliesTest, ReadsSentenceEncoders) {
  const auto bert = [] {
    Metadata m("bert");
    m.real("attention.layer_norm_epsilon", 1e-12f);
    return m;
  };
  const ModelConfig config = bert().flag("attention.causal", false).num("pooling_type", 1).read();
  EXPECT_TRUE(config.encoder);
  EXPECT_EQ(config.norm_placement, NormPlacement::kAfter);
  EXPECT_EQ(config.activation, Activation::kGeluErf);
  EXPECT_EQ(config.kv_bytes_per_token(4), 0);
  EXPECT_FLOAT_EQ(config.norm_eps, 1e-12f);
  EXPECT_THAT(bert().flag("attention.causal", false).num("pooling_type", 2).error(),
              HasSubstr("pooling type 2"));
  EXPECT_THAT(bert().num("pooling_type", 1).error(), HasSubstr("causal"));
}

TEST(GgufFamiliesTest, ReadsWindows) {
  const ModelConfig mistral = Metadata("llama").num("attention.sliding_window", 32).read();
  for (const LayerConfig& layer : mistral.layers) EXPECT_EQ(layer.window_tokens, 32);
  const ModelConfig wide = Metadata("llama").num("attention.sliding_window", 4096).read();
  for (const LayerConfig& layer : wide.layers) EXPECT_EQ(layer.window_tokens, 0);

  const ModelConfig gemma = Metadata("gemma3")
                                .num("attention.sliding_window", 24)
                                .num("attention.key_length", 32)
                                .num("attention.value_length", 32)
                                .real("rope.freq_base", 1e6f)
                                .text("rope.scaling.type", "linear")
                                .real("rope.scaling.factor", 8.0f)
                                .read();
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(gemma.layers[i], (LayerConfig{.window_tokens = 24, .rope = 1}));
  }
  EXPECT_EQ(gemma.layers[5], LayerConfig{});
  EXPECT_EQ(gemma.ropes[0].theta, 1e6f);
  EXPECT_EQ(gemma.ropes[0].factor, 8.0f);
  EXPECT_EQ(gemma.ropes[1], RopeConfig{});  // not scaled
  EXPECT_EQ(gemma.embedding_scale, 8.0f);
  EXPECT_FLOAT_EQ(gemma.attention_scale, 1.0f / std::sqrt(32.0f));
}

TEST(GgufFamiliesTest, ReadsYarn) {
  const auto qwen = [] {
    Metadata m("qwen2");
    m.text("rope.scaling.type", "yarn").real("rope.scaling.factor", 4.0f);
    m.num("rope.scaling.original_context_length", 64);
    return m;
  };
  const ModelConfig config = qwen().real("rope.scaling.yarn_beta_fast", 16.0f).read();
  const RopeConfig& rope = config.ropes[0];
  EXPECT_EQ(rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(rope.original_context_tokens, 64);
  EXPECT_EQ(rope.beta_fast, 16.0f);
  EXPECT_NEAR(rope.attention_factor, 0.1 * std::log(4.0) + 1.0, 1e-6);
  EXPECT_TRUE(config.qkv_bias);
  EXPECT_FALSE(config.interleaved_qk_rows);
  EXPECT_THAT(qwen().real("rope.scaling.yarn_ext_factor", 0.5f).error(),
              HasSubstr("extrapolation factor"));
}

TEST(GgufFamiliesTest, ReadsQwen3AndGpt2) {
  const ModelConfig qwen3 = Metadata("qwen3")
                                .num("attention.head_count_kv", 2)
                                .num("attention.key_length", 32)
                                .num("attention.value_length", 32)
                                .read();
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_FALSE(qwen3.qkv_bias);
  EXPECT_EQ(qwen3.head_dim, 32);

  const ModelConfig gpt2 = Metadata("gpt2").real("attention.layer_norm_epsilon", 1e-5f).read();
  EXPECT_EQ(gpt2.positions, PositionKind::kLearned);
  EXPECT_EQ(gpt2.norm, NormKind::kLayer);
  EXPECT_TRUE(gpt2.ropes.empty());
  EXPECT_EQ(gpt2.num_kv_heads, 4);
  EXPECT_FALSE(gpt2.gated_mlp);
}

TEST(GgufFamiliesTest, RefusesWhatTheRecipeCannotSay) {
  EXPECT_THAT(Metadata("gemma2").error(), HasSubstr("architecture 'gemma2' is not supported"));
  EXPECT_THAT(Metadata("llama").num("expert_count", 8).error(), HasSubstr("mixtures of experts"));
  EXPECT_THAT(Metadata("gemma3")
                  .num("attention.sliding_window", 24)
                  .real("final_logit_softcapping", 30.0f)
                  .error(),
              HasSubstr("soft-capped"));
  EXPECT_THAT(Metadata("qwen3").num("attention.value_length", 32).error(),
              HasSubstr("different head sizes"));
}

}  // namespace
}  // namespace batchmill
