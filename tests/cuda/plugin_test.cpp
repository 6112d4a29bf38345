// The CUDA plugin as the program finds it, or does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <vector>

#include "cuda/plugin_loader.h"

namespace batchmill {
namespace {

using ::testing::HasSubstr;

class CudaPluginTest : public ::testing::Test {
 protected:
  CudaPluginTest() : folder_(std::filesystem::path(::testing::TempDir()) / "plugins") {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~CudaPluginTest() override {
    unsetenv("BATCHMILL_PLUGINS");
    std::filesystem::remove_all(folder_);
  }
  void look_in(const std::filesystem::path& folder) {
    setenv("BATCHMILL_PLUGINS", folder.c_str(), 1);
  }
  // Beside this program, where the build puts them.
  static bool is_built(const char* file) {
    return std::filesystem::exists(std::filesystem::read_symlink("/proc/self/exe").parent_path() /
                                   file);
  }
  std::filesystem::path folder_;
};

TEST_F(CudaPluginTest, SaysThatItIsNotThere) {
  look_in(folder_);
  const CudaPlugin plugin(kCudaPluginFile);
  EXPECT_EQ(plugin.num_devices(), 0);
  EXPECT_EQ(plugin.reason(), "there is no " + (folder_ / kCudaPluginFile).string());
}

TEST_F(CudaPluginTest, RefusesFilesThatAreNoPlugin) {
  look_in(folder_);
  std::filesystem::copy_file("/proc/self/cmdline", folder_ / "broken.so");
  EXPECT_THAT(CudaPlugin("broken.so").reason(), HasSubstr("broken.so"));
  const std::filesystem::path other = folder_ / "other.so";
  std::filesystem::create_symlink("/lib/x86_64-linux-gnu/libm.so.6", other);
  if (!std::filesystem::exists(other)) GTEST_SKIP() << "skipped: no library to take for a plugin";
  EXPECT_THAT(CudaPlugin("other.so").reason(), HasSubstr("is of another build"));
}

// Whose functions end the process when they are called.
TEST_F(CudaPluginTest, RefusesAPluginOfAnotherBuild) {
  look_in(BATCHMILL_STALE_PLUGIN_FOLDER);
  const CudaPlugin plugin("stale_plugin.so");
  EXPECT_EQ(plugin.num_devices(), 0);
  EXPECT_THAT(plugin.reason(), HasSubstr("stale_plugin.so is of another build"));
}

TEST_F(CudaPluginTest, TellsWhyThereIsNoGpu) {
  if (!is_built(kCudaPluginFile)) GTEST_SKIP() << "skipped: no CUDA toolkit when this was built";
  const CudaPlugin plugin(kCudaPluginFile);
  if (plugin.num_devices() > 0) GTEST_SKIP() << "skipped: this machine has a GPU";
  EXPECT_THAT(plugin.reason(), ::testing::AnyOf(HasSubstr("driver"), HasSubstr("device")));
}

TEST_F(CudaPluginTest, MakesBackends) {
  if (!is_built(kEmulatedPluginFile)) GTEST_SKIP() << "skipped: no libboost-context-dev";
  const CudaPlugin plugin(kEmulatedPluginFile);
  ASSERT_EQ(plugin.num_devices(), 1) << plugin.reason();
  EXPECT_EQ(plugin.describe(0).name, "emulated threads");
  const std::unique_ptr<Backend> backend = plugin.create(0);
  EXPECT_THAT(backend->describe(), HasSubstr("cuda:0 emulated threads"));
  std::vector<float> values(1000);
  std::iota(values.begin(), values.end(), 1.0f);
  const auto memory = backend->allocate(values.size() * sizeof(float));
  backend->upload(std::as_bytes(std::span(values)), memory->data());
  std::vector<float> back(values.size());
  backend->download({memory->data(), DType::kF32, 10, 100}, back);
  EXPECT_EQ(back, values);
  EXPECT_THROW(plugin.create(3), std::runtime_error);
}

}  // namespace
}  // namespace batchmill
