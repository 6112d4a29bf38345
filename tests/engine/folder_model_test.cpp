// Model folders: what is found in them, and what is wrong with broken ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <random>
#include <system_error>

#include "engine/dequantize.h"
#include "engine/json_file.h"
#include "engine/model.h"
#include "engine/model_files.h"
#include "tests/engine/safetensors_builder.h"
#include "tests/support/temporary_directory.h"

namespace batchmill {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::SafetensorsBuilder;

const std::string kModels = BATCHMILL_TEST_DATA "/models/";

std::string error_of(const std::string& folder) {
  try {
    read_model_folder(folder);
    return "";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), HasSubstr(folder));
    return error.what();
  }
}

// The weights of a folder with a change.
void change_weights(const TemporaryDirectory& folder,
                    const std::function<void(SafetensorsBuilder&)>& change) {
  SafetensorsBuilder builder = SafetensorsBuilder::read(folder.path("model.safetensors"));
  change(builder);
  folder.write("model.safetensors", builder.bytes());
}

std::vector<std::vector<float>> rows_of(const ModelFiles& files, const std::string& name) {
  const TensorInfo* info = files.tensors->find(name);
  if (info == nullptr) throw std::runtime_error("no tensor " + name);
  std::vector<std::vector<float>> rows(static_cast<std::size_t>(info->rows));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].resize(static_cast<std::size_t>(info->cols));
    files.tensors->read_row(*info, static_cast<std::int64_t>(i), rows[i].data());
  }
  return rows;
}

std::vector<float> floats_of(const SafetensorsBuilder& file, const std::string& name) {
  const std::string_view bytes = file.data_of(name);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

bool same_tensors(const ModelFiles& a, const ModelFiles& b) {
  for (const TensorInfo& tensor : a.tensors->tensors()) {
    if (rows_of(a, tensor.name) != rows_of(b, tensor.name)) return false;
  }
  return a.tensors->tensors().size() == b.tensors->tensors().size();
}

// Divides model.safetensors into `count` shards with an index.
void split(const TemporaryDirectory& folder, std::size_t count) {
  const SafetensorsBuilder whole = SafetensorsBuilder::read(folder.path("model.safetensors"));
  std::vector<SafetensorsBuilder> shards(count);
  json map;
  std::size_t next = 0;
  const auto file_name = [&](std::size_t i) {
    return "model-0000" + std::to_string(i + 1) + "-of-0000" + std::to_string(count) +
           ".safetensors";
  };
  for (const auto& [name, entry] : whole.header.items()) {
    if (name == "__metadata__") continue;
    shards[next].array(name, entry.at("dtype"), entry.at("shape"), whole.data_of(name));
    map[name] = file_name(next);
    next = (next + 1) % count;
  }
  for (std::size_t i = 0; i < count; ++i) folder.write(file_name(i), shards[i].bytes());
  folder.write("model.safetensors.index.json",
               json{{"metadata", {{"total_size", 1}}}, {"weight_map", map}}.dump());
  folder.remove("model.safetensors");
}

TEST(FolderModelTest, ReadsAllTinyModels) {
  int read = 0;
  for (const auto& folder : std::filesystem::directory_iterator(kModels)) {
    SCOPED_TRACE(folder.path());
    const ModelFiles files = read_model_folder(folder.path().string());
    EXPECT_EQ(files.config.name, folder.path().filename().string());
    EXPECT_EQ(files.tensors->path(), folder.path().string());
    for (const TensorInfo& tensor : files.tensors->tensors()) {
      EXPECT_TRUE(tensor.readable);
      EXPECT_EQ(tensor.type, "F32");
      EXPECT_EQ(tensor.bytes, static_cast<std::size_t>(tensor.rows * tensor.cols) * 4);
      EXPECT_EQ(files.tensors->find(tensor.name), &tensor);
    }
    ++read;
  }
  EXPECT_EQ(read, 11);
}

TEST(FolderModelTest, OpensAsAnyModel) {
  for (const auto& entry : std::filesystem::directory_iterator(kModels)) {
    const std::string folder = entry.path().string();
    SCOPED_TRACE(folder);
    const auto model = Model::open(folder + "/");
    const bool encoder = model->config().encoder;
    EXPECT_EQ(model->tokenizer() == nullptr, encoder);
    EXPECT_EQ(model->chat_template() == nullptr, encoder);
    EXPECT_EQ(model->fingerprint(), Model::open(folder)->fingerprint());
    EXPECT_EQ(model->eos_token_ids().empty(), encoder);
  }
  try {
    Model::open(kModels + "llama/model.safetensors");
    ADD_FAILURE();
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("give the folder it is in"));
  }
  EXPECT_THROW(Model::open(kModels + "nowhere"), std::system_error);
}

TEST(FolderModelTest, GivesMatricesAsTheyAre) {
  const ModelFiles files = read_model_folder(kModels + "qwen2");
  const auto file = SafetensorsBuilder::read(kModels + "qwen2/model.safetensors");
  const std::vector<float> expected = floats_of(file, "model.layers.1.self_attn.k_proj.weight");
  std::vector<float> actual;
  for (const auto& row : rows_of(files, "blk.1.attn_k.weight")) {
    actual.insert(actual.end(), row.begin(), row.end());
  }
  EXPECT_EQ(actual, expected);
  EXPECT_EQ(rows_of(files, "blk.1.attn_k.bias").front(),
            floats_of(file, "model.layers.1.self_attn.k_proj.bias"));
  EXPECT_EQ(files.tensors->find("output.weight"), nullptr);
}

TEST(FolderModelTest, AddsOneToGemmasNorms) {
  const ModelFiles files = read_model_folder(kModels + "gemma3_text");
  const auto file = SafetensorsBuilder::read(kModels + "gemma3_text/model.safetensors");
  const std::pair<const char*, const char*> names[] = {
      {"blk.2.attn_norm.weight", "model.layers.2.input_layernorm.weight"},
      {"blk.2.post_attention_norm.weight", "model.layers.2.post_attention_layernorm.weight"},
      {"blk.2.ffn_norm.weight", "model.layers.2.pre_feedforward_layernorm.weight"},
      {"blk.2.post_ffw_norm.weight", "model.layers.2.post_feedforward_layernorm.weight"},
      {"blk.2.attn_q_norm.weight", "model.layers.2.self_attn.q_norm.weight"},
      {"output_norm.weight", "model.norm.weight"}};
  for (const auto& [tensor, name] : names) {
    std::vector<float> expected = floats_of(file, name);
    for (float& value : expected) value += 1.0f;
    EXPECT_EQ(rows_of(files, tensor).front(), expected) << tensor;
  }
}

TEST(FolderModelTest, TransposesGpt2sMatrices) {
  const ModelFiles files = read_model_folder(kModels + "gpt2");
  const auto file = SafetensorsBuilder::read(kModels + "gpt2/model.safetensors");
  const std::string name =
      file.header.contains("transformer.h.0.attn.c_attn.weight") ? "transformer." : "";
  const std::vector<float> stored = floats_of(file, name + "h.0.attn.c_attn.weight");
  const auto rows = rows_of(files, "blk.0.attn_qkv.weight");
  ASSERT_EQ(rows.size(), 192u);
  for (std::size_t out = 0; out < 192; ++out) {
    for (std::size_t in = 0; in < 64; ++in) {
      ASSERT_EQ(rows[out][in], stored[in * 192 + out]) << out << ", " << in;
    }
  }
}

TEST(FolderModelTest, TakesGpt2WithOrWithoutPrefixAndWithMasks) {
  const TemporaryDirectory folder(kModels + "gpt2");
  const ModelFiles original = read_model_folder(kModels + "gpt2");
  for (const std::string prefix : {"", "transformer."}) {
    change_weights(folder, [&](SafetensorsBuilder& file) {
      SafetensorsBuilder renamed;
      for (const auto& [name, entry] : file.header.items()) {
        if (name == "__metadata__") continue;
        const bool outer = name == "lm_head.weight" || name.starts_with("transformer.");
        const std::string bare =
            name.starts_with("transformer.") ? name.substr(sizeof("transformer.") - 1) : name;
        renamed.array(outer && bare == name ? name : prefix + bare, entry.at("dtype"),
                      entry.at("shape"), file.data_of(name));
      }
      if (!renamed.header.contains(prefix + "h.0.attn.bias")) {
        renamed.array(prefix + "h.0.attn.bias", "U8", {1, 1, 2, 2}, std::string("\1\0\1\1", 4));
        renamed.floats(prefix + "h.0.attn.masked_bias", {}, {-1e9f});
      }
      file = renamed;
    });
    EXPECT_TRUE(same_tensors(read_model_folder(folder.path()), original)) << prefix;
  }
}

TEST(FolderModelTest, StacksExperts) {
  const ModelFiles files = read_model_folder(kModels + "deepseek_v3");
  const auto file = SafetensorsBuilder::read(kModels + "deepseek_v3/model.safetensors");
  const auto rows = rows_of(files, "blk.1.ffn_down_exps.weight");
  ASSERT_EQ(rows.size(), 8u * 64);
  for (std::size_t expert = 0; expert < 8; ++expert) {
    const std::vector<float> matrix = floats_of(
        file, "model.layers.1.mlp.experts." + std::to_string(expert) + ".down_proj.weight");
    for (std::size_t row = 0; row < 64; ++row) {
      const auto begin = matrix.begin() + static_cast<std::ptrdiff_t>(row * 32);
      ASSERT_EQ(rows[expert * 64 + row], std::vector<float>(begin, begin + 32));
    }
  }
  EXPECT_EQ(rows_of(files, "blk.1.exp_probs_b.bias").front(),
            floats_of(file, "model.layers.1.mlp.gate.e_score_correction_bias"));
}

TEST(FolderModelTest, ReadsShards) {
  const TemporaryDirectory folder(kModels + "llama3");
  split(folder, 3);
  EXPECT_TRUE(
      same_tensors(read_model_folder(folder.path()), read_model_folder(kModels + "llama3")));

  const json index = json::parse(folder.read("model.safetensors.index.json"));
  const auto error_with = [&](const std::function<void(json&)>& change) {
    json broken = index;
    change(broken);
    folder.write("model.safetensors.index.json", broken.dump());
    return error_of(folder.path());
  };
  EXPECT_THAT(
      error_with([](json& j) { j["weight_map"]["lm_head.weight"] = "other.safetensors"; }),
      HasSubstr("shard other.safetensors, which holds tensor 'lm_head.weight', is missing"));
  EXPECT_THAT(error_with([](json& j) { j["weight_map"]["lm_head.weight"] = "../a"; }),
              HasSubstr("no file name"));
  EXPECT_THAT(error_with([](json& j) { j["weight_map"]["lm_head.weight"] = 3; }),
              HasSubstr("is no text"));
  EXPECT_THAT(error_with([](json& j) { j.erase("weight_map"); }), HasSubstr("weight_map"));
  EXPECT_THAT(error_with([](json& j) { j["weight_map"] = json::object(); }), HasSubstr("is empty"));
  EXPECT_THAT(error_with([](json& j) {
                auto& map = j["weight_map"];
                map["extra"] = map["lm_head.weight"];
              }),
              HasSubstr("tensor 'extra' is missing"));
  folder.write("model.safetensors.index.json", index.dump());
  folder.remove("model-00002-of-00003.safetensors");
  EXPECT_THAT(error_of(folder.path()),
              HasSubstr("shard model-00002-of-00003.safetensors, which holds tensor "));
  folder.write("model-00002-of-00003.safetensors", folder.read("model-00001-of-00003.safetensors"));
  EXPECT_THAT(error_of(folder.path()), HasSubstr("is also in"));
}

TEST(FolderModelTest, ReadsHalfPrecision) {
  const ModelFiles original = read_model_folder(kModels + "llama");
  for (const std::string dtype : {"F16", "BF16"}) {
    SCOPED_TRACE(dtype);
    const TemporaryDirectory folder(kModels + "llama");
    change_weights(folder, [&](SafetensorsBuilder& file) {
      SafetensorsBuilder halves;
      for (const auto& [name, entry] : file.header.items()) {
        if (name == "__metadata__") continue;
        std::string bytes;
        for (const float value : floats_of(file, name)) {
          // All weights are normal numbers of either type.
          std::uint16_t half = bfloat16_from_float(value);
          if (dtype == "F16") {
            std::uint32_t bits = 0;
            std::memcpy(&bits, &value, sizeof(bits));
            const int exponent = static_cast<int>((bits >> 23) & 255) - 127 + 15;
            half = exponent <= 0
                       ? 0
                       : static_cast<std::uint16_t>((bits >> 16 & 0x8000) |
                                                    static_cast<unsigned>(exponent) << 10 |
                                                    (bits >> 13 & 0x3ff));
          }
          bytes.append(reinterpret_cast<const char*>(&half), sizeof(half));
        }
        halves.array(name, dtype, entry.at("shape"), bytes);
      }
      file = halves;
    });
    const ModelFiles files = read_model_folder(folder.path());
    const float precision = dtype == "F16" ? 1.0f / 1024 : 1.0f / 256;
    for (const TensorInfo& tensor : files.tensors->tensors()) {
      EXPECT_EQ(tensor.type, dtype);
      const auto expected = rows_of(original, tensor.name);
      const auto actual = rows_of(files, tensor.name);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        for (std::size_t j = 0; j < expected[i].size(); ++j) {
          ASSERT_NEAR(actual[i][j], expected[i][j], std::abs(expected[i][j]) * precision + 6.2e-5f);
        }
      }
    }
  }
}

TEST(FolderModelTest, RoundsGemmasScaleToTheEmbeddingsType) {
  const TemporaryDirectory folder(kModels + "gemma3_text");
  auto config = read_json_file(folder.path("config.json"));
  // √96 lies between two numbers of bfloat16.
  change_weights(folder, [&](SafetensorsBuilder& file) {
    const std::string name = "model.embed_tokens.weight";
    SafetensorsBuilder changed;
    for (const auto& [key, entry] : file.header.items()) {
      if (key == "__metadata__" || key == name) continue;
      changed.array(key, entry.at("dtype"), entry.at("shape"), file.data_of(key));
    }
    changed.array(name, "BF16", {384, 96}, std::string(384 * 96 * 2, '\0'));
    file = changed;
  });
  config["hidden_size"] = 96;
  folder.write("config.json", config.dump());
  EXPECT_EQ(read_model_folder(folder.path()).config.embedding_scale, 9.8125f);
}

TEST(FolderModelTest, FindsEndTokens) {
  const TemporaryDirectory folder(kModels + "llama");
  const auto ids = [&](const std::string& generation, const std::string& config_ids) {
    auto config = read_json_file(kModels + "llama/config.json");
    config["eos_token_id"] = json::parse(config_ids);
    folder.write("config.json", config.dump());
    folder.write("generation_config.json", generation);
    return read_model_folder(folder.path()).eos_token_ids;
  };
  EXPECT_THAT(ids(R"({"eos_token_id": 7})", "5"), ElementsAre(7));
  EXPECT_THAT(ids(R"({"eos_token_id": [7, 9]})", "5"), ElementsAre(7, 9));
  EXPECT_THAT(ids("{}", "5"), ElementsAre(5));
  EXPECT_THAT(ids("{}", "[5, 6]"), ElementsAre(5, 6));
  EXPECT_THAT(ids(R"({"eos_token_id": null})", "null"), ElementsAre());
  EXPECT_THROW(ids(R"({"eos_token_id": 320})", "5"), std::runtime_error);
  EXPECT_THROW(ids(R"({"eos_token_id": "x"})", "5"), std::runtime_error);
  folder.remove("generation_config.json");
  EXPECT_THAT(read_model_folder(folder.path()).eos_token_ids, ElementsAre(5));
}

TEST(FolderModelTest, ReadsGenerationDefaults) {
  const TemporaryDirectory folder(kModels + "llama");
  const auto defaults = [&](const std::string& generation) {
    folder.write("generation_config.json", generation);
    return read_model_folder(folder.path()).generation_defaults;
  };
  const GenerationDefaults all = defaults(
      R"({"do_sample": true, "temperature": 0.6, "top_p": 0.9, "top_k": 20, "min_p": 0.05,
          "repetition_penalty": 1.1, "max_new_tokens": 5})");
  EXPECT_FLOAT_EQ(all.temperature.value(), 0.6f);
  EXPECT_FLOAT_EQ(all.top_p.value(), 0.9f);
  EXPECT_EQ(all.top_k.value(), 20);
  EXPECT_FLOAT_EQ(all.min_p.value(), 0.05f);
  EXPECT_FLOAT_EQ(all.repetition_penalty.value(), 1.1f);
  const GenerationDefaults none = defaults("{}");
  EXPECT_FALSE(none.temperature || none.top_p || none.top_k || none.min_p ||
               none.repetition_penalty);
  EXPECT_FLOAT_EQ(defaults(R"({"do_sample": false, "temperature": 0.6})").temperature.value(),
                  0.0f);
  EXPECT_FLOAT_EQ(defaults(R"({"temperature": 0.6, "top_k": null})").temperature.value(), 0.6f);
  EXPECT_THROW(defaults(R"({"top_p": 2})"), std::runtime_error);
  EXPECT_THROW(defaults(R"({"temperature": "hot"})"), std::runtime_error);
}

TEST(FolderModelTest, FindsTheChatTemplate) {
  const TemporaryDirectory folder(kModels + "llama");
  const auto found = [&] { return read_model_folder(folder.path()).chat_template; };
  folder.write("tokenizer_config.json", R"({"chat_template": "plain"})");
  EXPECT_EQ(found(), "plain");
  folder.write("tokenizer_config.json",
               R"({"chat_template": [{"name": "tool_use", "template": "tools"},
                                     {"name": "default", "template": "usual"}]})");
  EXPECT_EQ(found(), "usual");
  folder.write("chat_template.jinja", "own file\n");
  EXPECT_EQ(found(), "own file\n");
  folder.remove("chat_template.jinja");
  folder.write("tokenizer_config.json", R"({"chat_template": null})");
  EXPECT_EQ(found(), std::nullopt);
  folder.write("chat_template.json", R"({"chat_template": "of a processor"})");
  EXPECT_EQ(found(), "of a processor");
}

TEST(FolderModelTest, FitsTheVocabularyToTheModel) {
  const TemporaryDirectory folder(kModels + "llama");
  const auto original = *read_model_folder(folder.path()).vocabulary;
  EXPECT_EQ(original.model, "gpt2");
  EXPECT_EQ(original.tokens[1], "<|im_start|>");
  const auto with_token = [&](const std::string& key, std::int32_t id) {
    auto tokenizer = read_json_file(kModels + "llama/tokenizer.json");
    if (key == "added_tokens") {
      tokenizer[key].push_back({{"id", id}, {"content", "<image>"}, {"special", true}});
    } else {
      tokenizer["model"]["vocab"]["unheard"] = id;
    }
    folder.write("tokenizer.json", tokenizer.dump());
  };
  with_token("added_tokens", 320);
  EXPECT_EQ(read_model_folder(folder.path()).vocabulary->tokens, original.tokens);
  with_token("vocab", 320);
  EXPECT_THAT(error_of(folder.path()),
              HasSubstr("the tokenizer's token 320 is past the model's 320"));
}

TEST(FolderModelTest, HashesWhatDecidesAnswers) {
  const TemporaryDirectory folder(kModels + "llama");
  const auto hash = [&] { return read_model_folder(folder.path()).content_hash; };
  const std::uint64_t original = read_model_folder(kModels + "llama").content_hash;
  EXPECT_EQ(hash(), original);
  folder.write("README.md", "words");
  EXPECT_EQ(hash(), original);
  for (const std::string name :
       {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}) {
    const std::string content = folder.read(name);
    folder.write(name, content + " ");
    EXPECT_NE(hash(), original) << name;
    folder.write(name, content);
  }
  folder.write("chat_template.jinja", "");
  EXPECT_NE(hash(), original);
  folder.remove("chat_template.jinja");
  std::string weights = folder.read("model.safetensors");
  weights.back() ^= 1;
  folder.write("model.safetensors", weights);
  EXPECT_NE(hash(), original);
}

TEST(FolderModelTest, NamesWhatIsMissingOrTooMuch) {
  {
    const TemporaryDirectory folder;
    EXPECT_THAT(error_of(folder.path()), HasSubstr("holds no config.json"));
    folder.write("config.json", "{");
    EXPECT_THAT(error_of(folder.path()), HasSubstr("config.json: byte 2: not valid JSON"));
  }
  const TemporaryDirectory folder(kModels + "llama3");
  change_weights(folder, [](SafetensorsBuilder& file) {
    file.header["model.layers.1.self_attn.other.weight"] =
        file.header["model.layers.1.self_attn.q_proj.weight"];
    file.header.erase("model.layers.1.self_attn.q_proj.weight");
  });
  EXPECT_THAT(error_of(folder.path()),
              HasSubstr("tensor 'model.layers.1.self_attn.q_proj.weight' is missing"));
  folder.write("model.safetensors",
               SafetensorsBuilder::read(kModels + "llama3/model.safetensors")
                   .floats("model.rotary_emb.inv_freq", {1}, {1})
                   .floats("model.layers.0.self_attn.rotary_emb.inv_freq", {1}, {1})
                   .bytes());
  EXPECT_EQ(error_of(folder.path()), "");
  folder.write("model.safetensors", SafetensorsBuilder::read(kModels + "llama3/model.safetensors")
                                        .floats("model.layers.2.mlp.extra", {1}, {1})
                                        .bytes());
  EXPECT_THAT(error_of(folder.path()),
              HasSubstr("tensor 'model.layers.2.mlp.extra' is not part of architecture 'llama'"));
  folder.write("model.safetensors", SafetensorsBuilder().floats("x", {1}, {1}).bytes());
  EXPECT_THAT(error_of(folder.path()), HasSubstr("no tensor is named 'model.embed_tokens.weight'"));
  auto config = read_json_file(folder.path("config.json"));
  config["num_hidden_layers"] = 1000;
  folder.write("config.json", config.dump());
  folder.write("model.safetensors",
               SafetensorsBuilder().floats("model.embed_tokens.weight", {1}, {1}).bytes());
  EXPECT_THAT(error_of(folder.path()),
              HasSubstr("config.json says 1000 layers and experts, the folder holds 1 tensors"));
  folder.remove("model.safetensors");
  EXPECT_THAT(error_of(folder.path()), HasSubstr("holds neither model.safetensors nor"));
  folder.write("pytorch_model.bin", "");
  EXPECT_THAT(error_of(folder.path()), HasSubstr("pytorch_model.bin is not supported"));
}

TEST(FolderModelTest, SurvivesAnyDamage) {
  const TemporaryDirectory folder(kModels + "deepseek_v3");
  std::mt19937 random(3);
  int refused = 0;
  const std::vector<std::string> names = {"config.json", "model.safetensors",
                                          "generation_config.json", "tokenizer_config.json"};
  for (int round = 0; round < 200; ++round) {
    const std::string& name = names[random() % 2 == 0 ? 0 : random() % names.size()];
    const std::string content = folder.read(name);
    std::string damaged = content;
    // The beginning of weights is their description.
    const std::size_t range = std::min<std::size_t>(content.size(), 12000);
    for (int i = 0; i < 1 + round % 4; ++i) {
      damaged[random() % range] = static_cast<char>(random());
    }
    if (round % 10 == 0) damaged.resize(random() % damaged.size());
    folder.write(name, damaged);
    try {
      const ModelFiles files = read_model_folder(folder.path());
      for (const TensorInfo& tensor : files.tensors->tensors()) {
        if (tensor.readable && tensor.rows > 0) rows_of(files, tensor.name);
      }
    } catch (const std::runtime_error& error) {
      ++refused;
      EXPECT_THAT(error.what(), HasSubstr(folder.path()));
    }
    folder.write(name, content);
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace batchmill
