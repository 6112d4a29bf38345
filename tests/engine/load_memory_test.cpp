// A model that is being loaded never takes much more memory than one that is loaded. Measured in a
// process of its own, because a peak stays a peak.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "tests/engine/gguf_builder.h"
#include "tests/engine/temporary_file.h"

namespace batchmill {
namespace {

using B = testing::GgufBuilder;
using testing::TemporaryFile;

constexpr std::uint32_t kF32Id = 0;
constexpr std::uint32_t kF16Id = 1;

struct Memory {
  long long peak_bytes = 0;
  long long final_bytes = 0;
};

Memory memory_of_loading(const std::string& model, const std::string& dtype) {
  const std::string command =
      std::string("'") + BATCHMILL_LOAD_MEMORY + "' '" + model + "' " + dtype;
  const std::unique_ptr<FILE, int (*)(FILE*)> output(::popen(command.c_str(), "r"), ::pclose);
  Memory memory;
  EXPECT_NE(output, nullptr);
  EXPECT_EQ(std::fscanf(output.get(), "%lld %lld", &memory.peak_bytes, &memory.final_bytes), 2);
  return memory;
}

void expect_no_peak(const std::string& model, long long least_final_bytes) {
  for (const char* dtype : {"f32", "bf16"}) {
    SCOPED_TRACE(dtype);
    const Memory memory = memory_of_loading(model, dtype);
    std::cout << dtype << ": peak " << (memory.peak_bytes >> 20) << " MiB, loaded "
              << (memory.final_bytes >> 20) << " MiB\n";
    EXPECT_GT(memory.final_bytes, least_final_bytes);
    EXPECT_LE(static_cast<double>(memory.peak_bytes),
              1.1 * static_cast<double>(memory.final_bytes));
  }
}

// A llama of 59 MiB in F16, more than half of it in the two matrices of the vocabulary; all numbers
// are small and none is zero.
std::string make_model() {
  constexpr std::uint64_t kVocab = 16384;
  constexpr std::uint64_t kHidden = 512;
  constexpr std::uint64_t kInner = 1536;
  constexpr std::uint64_t kKv = 256;
  B b;
  b.string("general.architecture", "llama");
  const std::vector<std::pair<std::string, std::uint32_t>> keys = {{"block_count", 4},
                                                                   {"context_length", 64},
                                                                   {"embedding_length", kHidden},
                                                                   {"feed_forward_length", kInner},
                                                                   {"attention.head_count", 8},
                                                                   {"attention.head_count_kv", 4}};
  for (const auto& [key, value] : keys) b.uint32("llama." + key, value);
  const auto add = [&](const std::string& name, std::uint64_t cols, std::uint64_t rows) {
    const std::uint32_t type = rows > 1 ? kF16Id : kF32Id;
    b.tensor(name, {cols, rows}, type, b.data.size());
    b.data.append(cols * rows * (type == kF16Id ? 2 : 4), '\x11');
  };
  add("token_embd.weight", kHidden, kVocab);
  for (int i = 0; i < 4; ++i) {
    const std::string layer = "blk." + std::to_string(i) + ".";
    add(layer + "attn_norm.weight", kHidden, 1);
    add(layer + "attn_q.weight", kHidden, kHidden);
    add(layer + "attn_k.weight", kHidden, kKv);
    add(layer + "attn_v.weight", kHidden, kKv);
    add(layer + "attn_output.weight", kHidden, kHidden);
    add(layer + "ffn_norm.weight", kHidden, 1);
    add(layer + "ffn_gate.weight", kHidden, kInner);
    add(layer + "ffn_up.weight", kHidden, kInner);
    add(layer + "ffn_down.weight", kInner, kHidden);
  }
  add("output_norm.weight", kHidden, 1);
  add("output.weight", kHidden, kVocab);
  return b.bytes();
}

TEST(LoadMemoryTest, AModelTakesNoMoreWhileItIsLoaded) {
  const TemporaryFile file(make_model());
  expect_no_peak(file.path(), 59ll << 20);
}

TEST(LoadMemoryTest, APublishedModelTakesNoMoreWhileItIsLoaded) {
  const char* given = std::getenv("BATCHMILL_MODEL");
  const char* home = std::getenv("HOME");
  const std::string model = given != nullptr ? given
                                             : std::string(home != nullptr ? home : "") +
                                                   "/.cache/batchmill/"
                                                   "SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!std::filesystem::exists(model)) GTEST_SKIP() << "skipped: no model at " << model;
  expect_no_peak(model, static_cast<long long>(std::filesystem::file_size(model)));
}

}  // namespace
}  // namespace batchmill
