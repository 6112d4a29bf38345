#include "engine/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>

#include "engine/gguf_config.h"
#include "engine/gguf_tensors.h"
#include "engine/weights.h"
#include "tests/engine/gguf_builder.h"
#include "tests/engine/temporary_file.h"

namespace batchmill {
namespace {

using ::testing::HasSubstr;
using B = testing::GgufBuilder;
using testing::TemporaryFile;

constexpr std::uint32_t kF32Id = 0;

// A whole, tiny model of zeros whose parts a test can change before they are written.
struct TinyModel {
  std::string architecture = "llama";
  std::vector<std::pair<std::string, std::uint32_t>> keys = {
      {"block_count", 1},           {"context_length", 64},      {"embedding_length", 256},
      {"feed_forward_length", 256}, {"attention.head_count", 4}, {"attention.head_count_kv", 2}};
  struct Entry {
    std::string name;
    std::vector<std::uint64_t> dims;
    std::uint32_t type = kF32Id;
  };
  std::vector<Entry> tensors = {
      {"token_embd.weight", {256, 8}},          {"output_norm.weight", {256}},
      {"blk.0.attn_norm.weight", {256}},        {"blk.0.attn_q.weight", {256, 256}},
      {"blk.0.attn_k.weight", {256, 128}},      {"blk.0.attn_v.weight", {256, 128}},
      {"blk.0.attn_output.weight", {256, 256}}, {"blk.0.ffn_norm.weight", {256}},
      {"blk.0.ffn_gate.weight", {256, 256}},    {"blk.0.ffn_up.weight", {256, 256}},
      {"blk.0.ffn_down.weight", {256, 256}}};
  std::string scaling;

  Entry& tensor(const std::string& name) {
    for (Entry& entry : tensors) {
      if (entry.name == name) return entry;
    }
    throw std::out_of_range(name);
  }

  std::string bytes() const {
    B b;
    b.string("general.architecture", architecture);
    for (const auto& [key, value] : keys) b.uint32(architecture + "." + key, value);
    if (!scaling.empty()) b.string(architecture + ".rope.scaling.type", scaling);
    for (const Entry& entry : tensors) b.tensor(entry.name, entry.dims, entry.type, 0);
    b.data.assign(256 * 256 * 8, '\0');  // enough for any type
    return b.bytes();
  }
};

std::string error_of(const std::function<void(TinyModel&)>& change) {
  TinyModel model;
  change(model);
  const TemporaryFile file(model.bytes());
  try {
    const auto gguf = std::make_shared<const GgufFile>(file.path());
    check_weights(GgufTensors(gguf), read_model_config(*gguf));
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr(file.path()));
    return error.what();
  }
  return "";
}

TEST(ModelConfigTest, ReadsTheTinyModel) {
  const GgufFile file(BATCHMILL_TEST_DATA "/models/llama3/model-f16.gguf");
  const ModelConfig config = read_model_config(file);
  EXPECT_EQ(config.architecture, "llama");
  EXPECT_EQ(config.vocab_size, 384);
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.intermediate_size, 256);
  EXPECT_EQ(config.num_layers, 2);
  EXPECT_EQ(config.num_heads, 4);
  EXPECT_EQ(config.num_kv_heads, 1);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.max_context_tokens, 512);
  EXPECT_FLOAT_EQ(config.ropes.front().theta, 500000.0f);
  EXPECT_FALSE(config.tied_embeddings);
  EXPECT_EQ(config.kv_bytes_per_token(2), 2 * 2 * 1 * 16 * 2);
}

TEST(ModelConfigTest, NamesWhatIsMissingOrNotSupported) {
  EXPECT_EQ(error_of([](TinyModel&) {}), "");
  EXPECT_THAT(error_of([](TinyModel& m) { m.architecture = "gemma2"; }),
              HasSubstr("architecture 'gemma2' is not supported"));
  EXPECT_THAT(error_of([](TinyModel& m) { m.keys.erase(m.keys.begin()); }),
              HasSubstr("'llama.block_count' is missing"));
  EXPECT_THAT(error_of([](TinyModel& m) { m.keys[0].second = 0; }),
              HasSubstr("'llama.block_count' is 0"));
  EXPECT_THAT(error_of([](TinyModel& m) { m.keys[0].second = ~0u; }), HasSubstr("outside 1 to"));
  EXPECT_THAT(error_of([](TinyModel& m) { m.keys[5].second = 3; }), HasSubstr("4 heads"));
  EXPECT_THAT(error_of([](TinyModel& m) { m.keys.emplace_back("expert_count", 8); }),
              HasSubstr("mixtures of experts"));
  EXPECT_THAT(error_of([](TinyModel& m) { m.keys.emplace_back("rope.dimension_count", 32); }),
              HasSubstr("rotating 32 of 64"));
  EXPECT_THAT(error_of([](TinyModel& m) {
                m.architecture = "qwen2";
                m.keys.emplace_back("attention.sliding_window", 8);
              }),
              HasSubstr("sliding-window"));
  EXPECT_THAT(error_of([](TinyModel& m) { m.scaling = "longrope"; }),
              HasSubstr("rope scaling 'longrope' is not supported"));
  EXPECT_THAT(error_of([](TinyModel& m) { m.scaling = "yarn"; }),
              HasSubstr("'llama.rope.scaling.original_context_length' is missing"));
}

TEST(WeightsTest, NamesTheTensorThatDoesNotFit) {
  int refused = 0;
  for (std::uint32_t id = 0; id < 64; ++id) {
    const GgmlTypeInfo* info = find_type_info(static_cast<GgmlType>(id));
    if (info == nullptr || info->supported) continue;
    ++refused;
    const std::string error =
        error_of([&](TinyModel& m) { m.tensor("blk.0.attn_q.weight").type = id; });
    EXPECT_THAT(error, HasSubstr("tensor 'blk.0.attn_q.weight' has type " +
                                 std::string(info->name) + ", which is not supported"));
  }
  EXPECT_EQ(refused, 19);
  EXPECT_THAT(error_of([](TinyModel& m) { m.tensor("blk.0.ffn_up.weight").type = 77; }),
              HasSubstr("tensor 'blk.0.ffn_up.weight' has type 77"));
  EXPECT_THAT(error_of([](TinyModel& m) {
                m.tensor("blk.0.ffn_up.weight").dims = {256, 128};
              }),
              HasSubstr("is 128 rows of 256, the metadata say 256 of 256"));
  EXPECT_THAT(error_of([](TinyModel& m) { m.tensor("blk.0.ffn_up.weight").name = "x"; }),
              HasSubstr("'blk.0.ffn_up.weight' is missing"));
  EXPECT_THAT(error_of([](TinyModel& m) {
                m.tensors.push_back({"blk.0.attn_q.bias", {256}});
              }),
              HasSubstr("'blk.0.attn_k.bias' is missing"));
  EXPECT_THAT(error_of([](TinyModel& m) {
                m.tensors.push_back({"blk.0.attn_q_norm.weight", {64}});
              }),
              HasSubstr("'blk.0.attn_q_norm.weight' is not part of architecture 'llama'"));
}

TEST(WeightsTest, DividesRotationFrequenciesByTheFilesFactors) {
  const auto file =
      std::make_shared<const GgufFile>(BATCHMILL_TEST_DATA "/models/llama3/model-f16.gguf");
  const auto frequencies = rope_frequencies(GgufTensors(file), read_model_config(*file), 0);
  ASSERT_EQ(frequencies.size(), 8u);
  EXPECT_FLOAT_EQ(frequencies[0], 1.0f);  // short waves stay
  EXPECT_NEAR(frequencies[7], std::pow(500000.0, -14.0 / 16.0) / 8.0, 1e-9);  // long ones do not
}

TEST(WeightsTest, SurviveRandomDamage) {
  std::ifstream stream(BATCHMILL_TEST_DATA "/models/llama3/model-q4_0.gguf", std::ios::binary);
  std::ostringstream content;
  content << stream.rdbuf();
  const std::string whole = content.str();
  const TemporaryFile file("");
  std::mt19937 random(99);
  int read = 0;
  for (int round = 0; round < 500; ++round) {
    std::string bytes = whole;
    // Keys of the architecture lie in the first kilobyte, the directory ends at byte 9,500.
    const std::size_t at = random() % 2 == 0 ? random() % 1000 : 8300 + random() % 1200;
    bytes[at] = static_cast<char>(random());
    file.write(bytes);
    try {
      const auto gguf = std::make_shared<const GgufFile>(file.path());
      const ModelConfig config = read_model_config(*gguf);
      const GgufTensors tensors(gguf);
      check_weights(tensors, config);
      (void)rope_frequencies(tensors, config, 0);
      ++read;
    } catch (const std::runtime_error& error) {
      EXPECT_THAT(error.what(), HasSubstr(file.path()));
    }
  }
  EXPECT_GT(read, 20);
  EXPECT_LT(read, 480);
}

}  // namespace
}  // namespace batchmill
