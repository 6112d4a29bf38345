// tests/data/packed holds tiny folders in each packed format with what they must be read as
// (make_packed.py there).
#include "engine/packed_linear.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "engine/json_file.h"
#include "engine/model_files.h"
#include "tests/engine/safetensors_builder.h"
#include "tests/support/temporary_directory.h"

namespace batchmill {
namespace {

using ::testing::HasSubstr;
using testing::SafetensorsBuilder;

const std::string kPacked = BATCHMILL_TEST_DATA "/packed/";

class PackedLinearTest : public ::testing::TestWithParam<std::string> {};

TEST_P(PackedLinearTest, GivesTheMatricesThatWerePacked) {
  const ModelFiles files = read_model_folder(kPacked + GetParam());
  const auto expected = read_json_file(kPacked + GetParam() + "/expected.json").at("matrices");
  const std::pair<const char*, const char*> names[] = {
      {"model.layers.0.self_attn.q_proj.weight", "blk.0.attn_q.weight"},
      {"model.layers.0.self_attn.v_proj.weight", "blk.0.attn_v.weight"},
      {"model.layers.0.mlp.down_proj.weight", "blk.0.ffn_down.weight"}};
  for (const auto& [name, tensor] : names) {
    SCOPED_TRACE(name);
    const auto matrix = expected.at(name).get<std::vector<std::vector<float>>>();
    const TensorInfo* info = files.tensors->find(tensor);
    ASSERT_NE(info, nullptr);
    EXPECT_EQ(info->type, GetParam() == "awq" ? "AWQ-4" : "GPTQ-4");
    ASSERT_EQ(info->rows, static_cast<std::int64_t>(matrix.size()));
    ASSERT_EQ(info->cols, static_cast<std::int64_t>(matrix.front().size()));
    std::vector<float> row(matrix.front().size());
    for (std::size_t i = 0; i < matrix.size(); ++i) {
      files.tensors->read_row(*info, static_cast<std::int64_t>(i), row.data());
      ASSERT_EQ(row, matrix[i]) << "row " << i;
      if (i == 5) files.tensors->release(*info);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, PackedLinearTest,
                         ::testing::Values("awq", "gptq", "gptq-act-order", "gptq-v2"),
                         [](const auto& format) {
                           std::string name = format.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// One layer of 16 inputs and 8 outputs in GPTQ's format, with a change.
std::string error_with(const std::function<void(SafetensorsBuilder&)>& change) {
  SafetensorsBuilder builder;
  change(builder);
  const auto add = [&](const std::string& name, const std::vector<std::int64_t>& shape) {
    if (builder.header.contains(name)) return;
    std::int64_t size = 1;
    for (const std::int64_t n : shape) size *= n;
    builder.words(name, shape, std::vector<std::uint32_t>(static_cast<std::size_t>(size)));
  };
  add("a.qweight", {2, 8});
  add("a.qzeros", {2, 1});
  if (!builder.header.contains("a.scales")) {
    builder.floats("a.scales", {2, 8}, std::vector<float>(16));
  }
  if (builder.header["a.qzeros"].is_null()) builder.header.erase("a.qzeros");
  const TemporaryDirectory folder;
  folder.write("model.safetensors", builder.bytes());
  try {
    const SafetensorsFolder files(folder.path());
    const PackedLinear linear(files, "a", {.awq = false, .group_size = 8, .zero_offset = 1});
    EXPECT_EQ(linear.in_features(), 16);
    EXPECT_EQ(linear.out_features(), 8);
    return "";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr(folder.path("model.safetensors") + ": "));
    return error.what();
  }
}

TEST(PackedLinearTest, NamesArraysThatDoNotFit) {
  EXPECT_EQ(error_with([](SafetensorsBuilder&) {}), "");
  EXPECT_EQ(error_with([](SafetensorsBuilder& b) {
              b.words("a.g_idx", {16}, std::vector<std::uint32_t>(16, 1));
            }),
            "");
  EXPECT_THAT(error_with([](SafetensorsBuilder& b) {
                b.words("a.g_idx", {16}, std::vector<std::uint32_t>(16, 2));
              }),
              HasSubstr("tensor 'a.g_idx' gives input 0 group 2 of 2"));
  EXPECT_THAT(error_with([](SafetensorsBuilder& b) {
                b.words("a.g_idx", {16}, std::vector<std::uint32_t>(16, ~0u));
              }),
              HasSubstr("a.g_idx"));
  EXPECT_THAT(error_with([](SafetensorsBuilder& b) {
                b.words("a.g_idx", {2}, {0, 0});
              }),
              HasSubstr("tensor 'a.g_idx' has shape [2], not [16]"));
  EXPECT_THAT(error_with([](SafetensorsBuilder& b) {
                b.words("a.qzeros", {1, 2}, {0, 0});
              }),
              HasSubstr("tensor 'a.qzeros' has shape [1, 2], not [2, 1]"));
  EXPECT_THAT(error_with([](SafetensorsBuilder& b) {
                b.floats("a.scales", {1, 8}, std::vector<float>(8));
              }),
              HasSubstr("tensor 'a.scales' has shape [1, 8], not [2, 8]"));
  EXPECT_THAT(error_with([](SafetensorsBuilder& b) {
                b.words("a.scales", {2, 8}, std::vector<std::uint32_t>(16));
              }),
              HasSubstr("tensor 'a.scales' has dtype I32"));
  EXPECT_THAT(error_with([](SafetensorsBuilder& b) {
                b.floats("a.qweight", {2, 8}, std::vector<float>(16));
              }),
              HasSubstr("tensor 'a.qweight' has dtype F32"));
  EXPECT_THAT(error_with([](SafetensorsBuilder& b) {
                b.words("a.qweight", {16}, std::vector<std::uint32_t>(16));
              }),
              HasSubstr("not two dimensions"));
  EXPECT_THAT(error_with([](SafetensorsBuilder& b) {
                b.words("a.qweight", {2, 7}, std::vector<std::uint32_t>(14));
              }),
              HasSubstr("7 outputs"));
  EXPECT_THAT(error_with([](SafetensorsBuilder& b) { b.header["a.qzeros"] = nullptr; }),
              HasSubstr("tensor 'a.qzeros' is missing"));
}

}  // namespace
}  // namespace batchmill
