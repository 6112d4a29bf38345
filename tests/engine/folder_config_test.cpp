#include "engine/folder_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>

#include "engine/json_file.h"
#include "tests/support/temporary_directory.h"

namespace batchmill {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

const std::string kModels = BATCHMILL_TEST_DATA "/models/";

FolderConfig parse(const ordered_json& json) {
  return read_folder_config(ConfigObject(&json, "config.json"));
}

// config.json of a tiny model with a change.
FolderConfig changed(const std::string& model, const std::function<void(ordered_json&)>& change) {
  ordered_json json = read_json_file(kModels + model + "/config.json");
  change(json);
  return parse(json);
}

std::string error_of(const std::string& model, const std::function<void(ordered_json&)>& change) {
  try {
    changed(model, change);
    return "";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("config.json: "));
    return error.what();
  }
}

std::string error_with(const std::string& model, const std::string& key,
                       const ordered_json& value) {
  return error_of(model, [&](ordered_json& json) { json[key] = value; });
}

ModelConfig model_of(const std::string& name, const std::string& file = "/config.json") {
  return parse(read_json_file(kModels + name + file)).model;
}

TEST(FolderConfigTest, RefusesFilesOfBrackets) {
  const TemporaryDirectory folder;
  const auto error_of_text = [&](const std::string& text) -> std::string {
    folder.write("config.json", text);
    try {
      read_json_file(folder.path("config.json"));
      return "";
    } catch (const std::runtime_error& error) {
      return error.what();
    }
  };
  const auto nested = [](std::size_t depth) {
    return "{\"architectures\":" + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  EXPECT_EQ(error_of_text(nested(255)), "");
  EXPECT_THAT(error_of_text(nested(1'000'000)), HasSubstr("config.json: nests deeper than 256"));
  EXPECT_THROW(parse_json_table(nested(1'000'000)), std::runtime_error);
}

TEST(FolderConfigTest, BothSpellingsDescribeTheSameModel) {
  int compared = 0;
  for (const auto& folder : std::filesystem::directory_iterator(kModels)) {
    const std::string name = folder.path().filename().string();
    if (!std::filesystem::exists(folder.path() / "config-v4.json")) continue;
    SCOPED_TRACE(name);
    EXPECT_EQ(model_of(name), model_of(name, "/config-v4.json"));
    ++compared;
  }
  EXPECT_EQ(compared, 9);
}

TEST(FolderConfigTest, ReadsLlama) {
  const ModelConfig model = model_of("llama3");
  EXPECT_EQ(model.architecture, "llama");
  EXPECT_EQ(model.vocab_size, 384);
  EXPECT_EQ(model.hidden_size, 64);
  EXPECT_EQ(model.intermediate_size, 256);
  EXPECT_EQ(model.num_layers, 2);
  EXPECT_EQ(model.num_heads, 4);
  EXPECT_EQ(model.num_kv_heads, 1);
  EXPECT_EQ(model.head_dim, 16);
  EXPECT_EQ(model.max_context_tokens, 512);
  EXPECT_FLOAT_EQ(model.norm_eps, 1e-5f);
  EXPECT_FLOAT_EQ(model.attention_scale, 0.25f);
  EXPECT_FALSE(model.tied_embeddings);
  EXPECT_FALSE(model.interleaved_qk_rows);
  EXPECT_FALSE(model.qkv_bias);
  ASSERT_EQ(model.ropes.size(), 1u);
  const RopeConfig& rope = model.ropes.front();
  EXPECT_EQ(rope.scaling, RopeScaling::kLlama3);
  EXPECT_FLOAT_EQ(rope.theta, 500000.0f);
  EXPECT_FLOAT_EQ(rope.factor, 8.0f);
  EXPECT_EQ(rope.original_context_tokens, 64);
  EXPECT_TRUE(model_of("llama").tied_embeddings);
}

TEST(FolderConfigTest, ReadsBiasesAndHeadSizes) {
  const ModelConfig biased = changed("llama", [](ordered_json& json) {
                               json["attention_bias"] = true;
                               json["mlp_bias"] = true;
                               json["head_dim"] = 48;
                             }).model;
  EXPECT_TRUE(biased.qkv_bias && biased.attention_output_bias && biased.mlp_bias);
  EXPECT_EQ(biased.head_dim, 48);
  for (const bool null : {false, true}) {
    const ModelConfig derived = changed("llama", [&](ordered_json& json) {
                                  json.erase("head_dim");
                                  json.erase("num_key_value_heads");
                                  if (null) json["head_dim"] = nullptr;
                                }).model;
    EXPECT_EQ(derived.head_dim, 16);
    EXPECT_EQ(derived.num_kv_heads, 4);
  }
  const ModelConfig qwen2 = model_of("qwen2");
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.attention_output_bias);
  const ModelConfig qwen3 = model_of("qwen3");
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_EQ(qwen3.head_dim, 32);
  EXPECT_EQ(changed("qwen3", [](ordered_json& json) { json.erase("head_dim"); }).model.head_dim,
            128);
}

TEST(FolderConfigTest, ReadsLinearAndDynamicScaling) {
  EXPECT_EQ(model_of("llama-linear").ropes.front().scaling, RopeScaling::kLinear);
  EXPECT_FLOAT_EQ(model_of("llama-linear").ropes.front().factor, 4.0f);
  // With the older key and its older spelling.
  const ModelConfig dynamic = changed("llama", [](ordered_json& json) {
                                json.erase("rope_parameters");
                                json["rope_theta"] = 30000;
                                json["rope_scaling"] = {{"type", "dynamic"}, {"factor", 2.0}};
                              }).model;
  EXPECT_EQ(dynamic.ropes.front().scaling, RopeScaling::kDynamic);
  EXPECT_FLOAT_EQ(dynamic.ropes.front().theta, 30000.0f);
  const std::int32_t stated = model_of("llama").max_context_tokens;
  EXPECT_EQ(dynamic.ropes.front().original_context_tokens, stated);
  EXPECT_EQ(dynamic.max_context_tokens, 2 * stated);
}

TEST(FolderConfigTest, ReadsYarn) {
  const ModelConfig model = model_of("qwen2-yarn");
  const RopeConfig& rope = model.ropes.front();
  EXPECT_EQ(rope.scaling, RopeScaling::kYarn);
  EXPECT_FLOAT_EQ(rope.factor, 4.0f);
  EXPECT_EQ(rope.original_context_tokens, 64);
  EXPECT_FLOAT_EQ(rope.beta_fast, 32.0f);
  EXPECT_FLOAT_EQ(rope.beta_slow, 1.0f);
  EXPECT_TRUE(rope.truncate);
  EXPECT_FLOAT_EQ(rope.attention_factor, 0.1f * std::log(4.0f) + 1.0f);
  EXPECT_EQ(model.max_context_tokens, 256);
  // As Qwen's cards tell to add it: the stated length is the original one.
  const ModelConfig added = changed("qwen2", [](ordered_json& json) {
                              json["max_position_embeddings"] = 64;
                              json["rope_scaling"] = {{"type", "yarn"},
                                                      {"factor", 4.0},
                                                      {"original_max_position_embeddings", 64},
                                                      {"attention_factor", 1.5},
                                                      {"truncate", false}};
                            }).model;
  EXPECT_EQ(added.max_context_tokens, 256);
  EXPECT_FLOAT_EQ(added.ropes.front().attention_factor, 1.5f);
  EXPECT_FALSE(added.ropes.front().truncate);
}

TEST(FolderConfigTest, ReadsWindows) {
  for (const LayerConfig& layer : model_of("mistral").layers) EXPECT_EQ(layer.window_tokens, 32);
  const auto window_of = [](const std::function<void(ordered_json&)>& change) {
    return changed("mistral", change).model.layers.back().window_tokens;
  };
  EXPECT_EQ(window_of([](ordered_json& json) { json["sliding_window"] = nullptr; }), 0);
  EXPECT_EQ(window_of([](ordered_json& json) {
              json.erase("sliding_window");
              json["max_position_embeddings"] = 32768;
            }),
            4096);
  EXPECT_EQ(window_of([](ordered_json& json) { json["sliding_window"] = 100000; }), 0);

  const auto qwen = [](const std::function<void(ordered_json&)>& change) {
    std::vector<std::int32_t> windows;
    for (const LayerConfig& layer : changed("qwen2", change).model.layers) {
      windows.push_back(layer.window_tokens);
    }
    return windows;
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(qwen([](ordered_json& json) { json["sliding_window"] = 32; }), ElementsAre(0, 0));
  EXPECT_THAT(qwen([](ordered_json& json) {
                json["sliding_window"] = 32;
                json["use_sliding_window"] = true;
                json["max_window_layers"] = 1;
                json.erase("layer_types");
              }),
              ElementsAre(0, 32));
  EXPECT_THAT(qwen([](ordered_json& json) {
                json["sliding_window"] = 32;
                json["use_sliding_window"] = true;
                json["layer_types"] = {"sliding_attention", "full_attention"};
              }),
              ElementsAre(32, 0));
}

TEST(FolderConfigTest, ReadsGemma) {
  const ModelConfig model = model_of("gemma3_text");
  EXPECT_EQ(model.architecture, "gemma3");
  EXPECT_EQ(model.norm_placement, NormPlacement::kAround);
  EXPECT_EQ(model.activation, Activation::kGeluTanh);
  EXPECT_TRUE(model.qk_norm && model.tied_embeddings);
  EXPECT_FLOAT_EQ(model.embedding_scale, 8.0f);
  EXPECT_FLOAT_EQ(model.attention_scale, 1.0f / std::sqrt(32.0f));
  ASSERT_EQ(model.ropes.size(), 2u);
  EXPECT_FLOAT_EQ(model.ropes[0].theta, 1e6f);
  EXPECT_FLOAT_EQ(model.ropes[1].theta, 1e4f);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(model.layers[i].window_tokens, i == 5 ? 0 : 24);
    EXPECT_EQ(model.layers[i].rope, i == 5 ? 0 : 1);
  }
  // What old configs leave out.
  const ModelConfig old = changed("gemma3_text", [](ordered_json& json) {
                            json.erase("layer_types");
                            json.erase("_sliding_window_pattern");
                          }).model;
  EXPECT_EQ(old, model);
  EXPECT_FLOAT_EQ(
      changed("gemma3_text", [](ordered_json& json) { json["query_pre_attn_scalar"] = 168; })
          .model.attention_scale,
      1.0f / std::sqrt(168.0f));
}

TEST(FolderConfigTest, RoundsTheEmbeddingScaleWhereTheMakerDoes) {
  const auto wide = [](const char* dtype) {
    return changed("gemma3_text",
                   [&](ordered_json& json) {
                     json["hidden_size"] = 640;
                     json["dtype"] = dtype;
                   })
        .model.embedding_scale;
  };
  EXPECT_FLOAT_EQ(wide("float32"), std::sqrt(640.0f));
  EXPECT_EQ(wide("bfloat16"), 25.25f);
}

TEST(FolderConfigTest, ReadsTheLanguageModelOfAModelThatSeesImages) {
  const ModelConfig plain = model_of("gemma3_text");
  const FolderConfig outer = changed("gemma3_text", [](ordered_json& json) {
    ordered_json text = json;
    text.erase("architectures");
    text.erase("rope_parameters");
    text["rope_theta"] = 1e6;
    text["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
    json = {{"architectures", {"Gemma3ForConditionalGeneration"}},
            {"text_config", text},
            {"vision_config", ordered_json::object()}};
  });
  EXPECT_EQ(outer.model.layers, plain.layers);
  EXPECT_EQ(outer.model.ropes[0].scaling, RopeScaling::kLinear);
  EXPECT_EQ(outer.model.ropes[1].scaling, RopeScaling::kNone);
}

TEST(FolderConfigTest, ReadsDeepSeek) {
  const ModelConfig model = model_of("deepseek_v3");
  EXPECT_EQ(model.architecture, "deepseek2");
  EXPECT_TRUE(model.interleaved_qk_rows);
  ASSERT_TRUE(model.latent.has_value());
  EXPECT_EQ(model.latent->q_lora_rank, 32);
  EXPECT_EQ(model.latent->kv_lora_rank, 32);
  EXPECT_EQ(model.latent->nope_dim, 16);
  EXPECT_EQ(model.latent->rope_dim, 16);
  EXPECT_EQ(model.latent->value_dim, 16);
  EXPECT_EQ(model.head_dim, 32);
  ASSERT_TRUE(model.experts.has_value());
  EXPECT_EQ(model.experts->num_experts, 8);
  EXPECT_EQ(model.experts->num_experts_per_token, 2);
  EXPECT_EQ(model.experts->num_shared_experts, 1);
  EXPECT_EQ(model.experts->intermediate_size, 32);
  EXPECT_EQ(model.experts->num_groups, 4);
  EXPECT_EQ(model.experts->num_groups_per_token, 2);
  EXPECT_TRUE(model.experts->normalize_weights);
  EXPECT_FLOAT_EQ(model.experts->weights_scale, 2.5f);
  EXPECT_FALSE(model.layers[0].experts);
  EXPECT_TRUE(model.layers[1].experts && model.layers[2].experts);
  const double all = 0.1 * 0.8 * std::log(8.0) + 1.0;
  EXPECT_FLOAT_EQ(model.attention_scale, static_cast<float>(all * all / std::sqrt(32.0)));
  EXPECT_FLOAT_EQ(model.ropes.front().attention_factor,
                  static_cast<float>((0.1 * std::log(8.0) + 1.0) / all));
  EXPECT_FLOAT_EQ(model.ropes.front().beta_fast, 4.0f);
  EXPECT_EQ(changed("deepseek_v3", [](ordered_json& json) { json["q_lora_rank"] = nullptr; })
                .model.latent->q_lora_rank,
            0);
}

TEST(FolderConfigTest, ReadsGpt2) {
  const ModelConfig model = model_of("gpt2");
  EXPECT_EQ(model.positions, PositionKind::kLearned);
  EXPECT_EQ(model.norm, NormKind::kLayer);
  EXPECT_EQ(model.activation, Activation::kGeluTanh);
  EXPECT_FALSE(model.gated_mlp);
  EXPECT_TRUE(model.qkv_bias && model.attention_output_bias && model.mlp_bias);
  EXPECT_TRUE(model.tied_embeddings);
  EXPECT_TRUE(model.ropes.empty());
  EXPECT_EQ(model.max_context_tokens, 256);
  EXPECT_EQ(changed("gpt2", [](ordered_json& json) { json["n_inner"] = nullptr; })
                .model.intermediate_size,
            256);
}

TEST(FolderConfigTest, ReadsBert) {
  ModelConfig model = model_of("bert");
  EXPECT_TRUE(model.encoder && model.embedding_norm);
  EXPECT_EQ(model.norm_placement, NormPlacement::kAfter);
  EXPECT_EQ(model.activation, Activation::kGeluErf);
  EXPECT_EQ(model.num_token_types, 2);
  EXPECT_FLOAT_EQ(model.norm_eps, 1e-12f);
  const ModelConfig before = model;
  apply_sentence_encoder(kModels + "bert", &model);
  EXPECT_EQ(model, before);
}

TEST(FolderConfigTest, AppliesASentenceEncodersSettings) {
  const TemporaryDirectory folder(kModels + "bert");
  folder.write("sentence_bert_config.json", R"({"max_seq_length": 128, "do_lower_case": false})");
  ModelConfig model = model_of("bert");
  apply_sentence_encoder(folder.path(), &model);
  EXPECT_EQ(model.max_context_tokens, 128);

  const auto error = [&](const std::string& file, const std::string& content) {
    const std::string before = folder.read(file);
    folder.write(file, content);
    try {
      apply_sentence_encoder(folder.path(), &model);
      ADD_FAILURE() << content;
    } catch (const std::runtime_error& refusal) {
      folder.write(file, before);
      return std::string(refusal.what());
    }
    return std::string();
  };
  EXPECT_THAT(error("1_Pooling/config.json", R"({"pooling_mode_cls_token": true})"),
              HasSubstr("'pooling_mode_cls_token' is true, which is not supported"));
  EXPECT_THAT(error("1_Pooling/config.json", R"({"pooling_mode": "lasttoken"})"),
              HasSubstr("'pooling_mode' is \"lasttoken\", which is not supported"));
  EXPECT_THAT(error("1_Pooling/config.json", "{}"), HasSubstr("1_Pooling/config.json"));
  EXPECT_THAT(error("modules.json", R"([{"type": "sentence_transformers.models.Dense"}])"),
              HasSubstr("sentence_transformers.models.Dense"));
  EXPECT_THAT(error("modules.json", R"([{"type": "x.Pooling", "path": "../elsewhere"}])"),
              HasSubstr("'path'"));
  EXPECT_THAT(error("modules.json", R"([{"type": "x.Transformer"}])"), HasSubstr("Normalize"));
  EXPECT_THAT(error("modules.json", "{}"), HasSubstr("not a list"));
}

TEST(FolderConfigTest, RefusesWhatItDoesNotKnowByName) {
  EXPECT_THAT(error_with("llama", "architectures", {"MambaForCausalLM"}),
              HasSubstr("architecture 'MambaForCausalLM' is not supported"));
  EXPECT_THAT(error_with("llama", "architectures", nullptr),
              HasSubstr("'architectures' is missing"));
  EXPECT_THAT(error_with("llama", "hidden_act", "relu"),
              HasSubstr("'hidden_act' is \"relu\", which is not supported"));
  EXPECT_THAT(error_with("llama", "rope_scaling", {{"rope_type", "longrope"}}),
              HasSubstr("rope_scaling: 'rope_type' is \"longrope\", which is not supported"));
  EXPECT_THAT(error_with("llama", "partial_rotary_factor", 0.5),
              HasSubstr("'partial_rotary_factor'"));
  EXPECT_THAT(error_with("qwen2", "layer_types", {"full_attention", "linear_attention"}),
              HasSubstr("'linear_attention' is not supported"));
  EXPECT_THAT(error_with("gemma3_text", "final_logit_softcapping", 30.0),
              HasSubstr("final_logit_softcapping"));
  EXPECT_THAT(error_with("gemma3_text", "use_bidirectional_attention", true),
              HasSubstr("use_bidirectional_attention"));
  EXPECT_THAT(error_with("deepseek_v3", "scoring_func", "softmax"), HasSubstr("softmax"));
  EXPECT_THAT(error_with("deepseek_v3", "topk_method", "greedy"), HasSubstr("greedy"));
  EXPECT_THAT(error_with("gpt2", "scale_attn_by_inverse_layer_idx", true),
              HasSubstr("scale_attn_by_inverse_layer_idx"));
  EXPECT_THAT(error_with("bert", "position_embedding_type", "relative_key"),
              HasSubstr("relative_key"));
}

TEST(FolderConfigTest, NamesKeysThatAreMissingOrOutOfRange) {
  EXPECT_THAT(error_of("llama", [](ordered_json& json) { json.erase("vocab_size"); }),
              HasSubstr("'vocab_size' is missing"));
  EXPECT_THAT(error_with("llama", "vocab_size", 0), HasSubstr("'vocab_size' is 0, outside 1 to"));
  EXPECT_THAT(error_with("llama", "hidden_size", "wide"), HasSubstr("not a whole number"));
  EXPECT_THAT(error_with("llama", "hidden_size", 1.5), HasSubstr("not a whole number"));
  EXPECT_THAT(error_with("llama", "num_hidden_layers", 18446744073709551615ull),
              HasSubstr("outside"));
  EXPECT_THAT(error_with("llama", "num_key_value_heads", 3), HasSubstr("evenly"));
  EXPECT_THAT(error_with("llama", "rms_norm_eps", -1), HasSubstr("'rms_norm_eps'"));
  EXPECT_THAT(error_with("llama", "tie_word_embeddings", 1), HasSubstr("not true or false"));
  EXPECT_THAT(error_with("llama", "rope_parameters", {{"rope_type", "linear"}}),
              HasSubstr("'factor' is missing"));
  EXPECT_THAT(error_with("qwen2", "layer_types", {"full_attention"}), HasSubstr("1 entries for 2"));
  EXPECT_THAT(error_with("deepseek_v3", "n_group", 3), HasSubstr("do not divide"));
}

TEST(FolderConfigTest, ReadsQuantizationSettings) {
  const auto packed = [](const ordered_json& settings) {
    return *changed("llama", [&](ordered_json& json) {
              json["quantization_config"] = settings;
            }).packed;
  };
  EXPECT_TRUE(packed({{"quant_method", "awq"}, {"bits", 4}, {"group_size", 64}}).awq);
  EXPECT_EQ(packed({{"quant_method", "awq"}, {"bits", 4}, {"group_size", 64}}).group_size, 64);
  EXPECT_EQ(packed({{"quant_method", "gptq"}, {"bits", 4}, {"group_size", -1}}).group_size, 0);
  EXPECT_EQ(packed({{"quant_method", "gptq"}, {"bits", 4}}).zero_offset, 1);
  EXPECT_EQ(
      packed({{"quant_method", "gptq"}, {"bits", 4}, {"checkpoint_format", "gptq_v2"}}).zero_offset,
      0);
  const auto error = [](const ordered_json& settings) {
    return error_with("llama", "quantization_config", settings);
  };
  EXPECT_THAT(error({{"quant_method", "fp8"}}),
              HasSubstr("quantization_config: 'quant_method' is \"fp8\", which is not supported"));
  EXPECT_THAT(error({{"bits", 4}}), HasSubstr("'quant_method' is missing"));
  EXPECT_THAT(error({{"quant_method", "gptq"}, {"bits", 3}}), HasSubstr("'bits' is 3"));
  EXPECT_THAT(error({{"quant_method", "awq"}, {"bits", 4}, {"version", "gemv"}}),
              HasSubstr("'version' is \"gemv\""));
  EXPECT_THAT(error({{"quant_method", "gptq"}, {"bits", 4}, {"checkpoint_format", "marlin"}}),
              HasSubstr("marlin"));
}

}  // namespace
}  // namespace batchmill
