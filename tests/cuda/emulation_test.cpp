// What the emulation of CUDA threads gives a kernel, and what it refuses.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "cuda/device_buffer.h"
#include "cuda/device_choice.h"
#include "cuda/emulation/work_queue.h"
#include "cuda/launch.h"
#include "tests/support/sanitized_build.h"

namespace batchmill {
namespace {

class EmulationTest : public ::testing::TestWithParam<int> {
 protected:
  EmulationTest() { emulation::set_schedule_seed(static_cast<std::uint64_t>(GetParam())); }
  ~EmulationTest() override { emulation::set_schedule_seed(0); }

  template <typename... P, typename... A>
  void run(void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared, A... arguments) {
    CudaStream stream(0);
    launch(kernel, grid, block, shared, stream.handle(), arguments...);
    stream.synchronize();
  }
  template <typename... P, typename... A>
  std::string failure_of(void (*kernel)(P...), unsigned threads, A... arguments) {
    try {
      run(kernel, 1, threads, 256, arguments...);
    } catch (const CudaError& error) {
      return error.what();
    }
    return "no failure";
  }
};

void collectives(int* errors) {
  const int thread = static_cast<int>(threadIdx.x + blockDim.x * threadIdx.y);
  const int lane = thread % 32;
  const int value = thread * 10;
  int wrong = 0;
  wrong += __shfl_xor_sync(kWholeWarp, value, 9) != (thread / 32 * 32 + (lane ^ 9)) * 10;
  wrong += __shfl_sync(kWholeWarp, value, 7) != (thread / 32 * 32 + 7) * 10;
  wrong += __shfl_up_sync(kWholeWarp, value, 3) != (lane >= 3 ? value - 30 : value);
  wrong += __ballot_sync(kWholeWarp, lane % 3 == 0) != 0x49249249u;
  wrong += warp_sum(1.0f) != 32.0f;
  wrong += warp_max<4>(static_cast<float>(lane)) != static_cast<float>(lane / 4 * 4 + 3);
  SHARED_ARRAY(int, shared, 256);
  shared[thread] = thread;
  __syncthreads();
  wrong += shared[(thread + 37) % 256] != (thread + 37) % 256;
  atomicAdd(errors, wrong);
  atomicAdd(errors + 1, 1);
  atomicMax(errors + 2, static_cast<int>(blockIdx.x + gridDim.x * blockIdx.y) * 256 + thread);
}

TEST_P(EmulationTest, GivesThreadsTheirCollectives) {
  int errors[3] = {};
  run(collectives, dim3(3, 2), dim3(32, 8), 0, errors);
  EXPECT_EQ(errors[0], 0);
  EXPECT_EQ(errors[1], 6 * 256);
  EXPECT_EQ(errors[2], 6 * 256 - 1);
}

// What comes behind an event is not run by who waits for it.
TEST(EmulatedStreamTest, EventsAreReachedWithoutWhatComesBehind) {
  CudaStream stream(0);
  CudaEvent event;
  CudaEvent never;
  int first = 0;
  int second = 0;
  const int one = 1;
  stream.copy_to_host(&first, &one, sizeof(int));
  event.record(stream);
  stream.copy_to_host(&second, &one, sizeof(int));
  EXPECT_EQ(emulation::num_waiting(), 2u);
  never.wait();
  EXPECT_EQ(first, 0);
  event.wait();
  event.wait();
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 0);
  event.record(stream);
  stream.synchronize();
  EXPECT_EQ(second, 1);
  event.wait();
  EXPECT_EQ(emulation::num_waiting(), 0u);
}

void matrix_products(float* output) {
  SHARED_ARRAY(Bf16, a, 16 * 16);
  SHARED_ARRAY(Bf16, b, 16 * 8);
  // a[i][k] = i + k, b[k][j] = k - 2 j, as bf16: small integers are exact.
  for (int i = static_cast<int>(threadIdx.x); i < 256; i += 32) {
    a[i] = static_cast<Bf16>(pack_bf16(static_cast<float>(i / 16 + i % 16), 0.0f));
    if (i < 128) b[i] = static_cast<Bf16>(pack_bf16(static_cast<float>(i / 8 - 2 * (i % 8)), 0.0f));
  }
  __syncwarp();
  const int lane = static_cast<int>(threadIdx.x);
  std::uint32_t first[4];
  std::uint32_t second[4];
  load_matrices(first, a + lane % 16 * 16 + lane / 16 * 8);
  load_matrices_transposed(second, b + lane % 16 * 8);
  float sums[4] = {1.0f, 1.0f, 1.0f, 1.0f};
  multiply_bf16(sums, first, second[0], second[1]);
  for (int i = 0; i < 4; ++i) output[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sums[i];
}

TEST_P(EmulationTest, MultipliesMatricesAsTheInstructionDoes) {
  std::vector<float> output(16 * 8);
  run(matrix_products, 1, 32, 0, output.data());
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) {
      float expected = 1.0f;
      for (int k = 0; k < 16; ++k) expected += static_cast<float>((i + k) * (k - 2 * j));
      EXPECT_EQ(output[static_cast<std::size_t>(i * 8 + j)], expected) << i << ", " << j;
    }
  }
}

void unwaited_copy(const float* input, float* output) {
  SHARED_ARRAY(float, shared, 128);
  copy_async16(shared + threadIdx.x * 4, input + threadIdx.x * 4, threadIdx.x != 1);
  commit_copies();
  output[threadIdx.x] = shared[threadIdx.x * 4];
  wait_for_copies<0>();
  output[32 + threadIdx.x] = shared[threadIdx.x * 4];
}

TEST_P(EmulationTest, LandsCopiesWhenTheyAreWaitedFor) {
  alignas(16) float input[128];
  std::fill_n(input, 128, 5.0f);
  float output[64];
  run(unwaited_copy, 1, 32, 0, input, output);
  for (int i = 0; i < 32; ++i) {
    EXPECT_TRUE(std::isnan(output[i]));
    EXPECT_EQ(output[32 + i], i == 1 ? 0.0f : 5.0f);
  }
}

void divergent_barriers(int) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}
void barrier_without_some(int) {
  if (threadIdx.x < 32) __syncthreads();
}
void shuffle_without_some(int value) {
  if (threadIdx.x % 32 != 5) static_cast<void>(__shfl_xor_sync(kWholeWarp, value, 1));
}
void partial_mask(int value) { static_cast<void>(__shfl_xor_sync(0xFFFFu, value, 1)); }
void write_beyond(int count) {
  SHARED_ARRAY(int, shared, 32);
  int* behind = shared + 32;
  if (static_cast<int>(threadIdx.x) < count) behind[threadIdx.x] = 1;
}
void forgotten_copy(const float* input) {
  SHARED_ARRAY(float, shared, 128);
  copy_async16(shared + threadIdx.x % 32 * 4, input, true);
}
void misaligned_load(const float* input) { static_cast<void>(load16(input + 1)); }

TEST_P(EmulationTest, RefusesWhatHangsAGpu) {
  if (kThreadSanitizedBuild)
    GTEST_SKIP() << "skipped: lanes that never end leave no order behind for ThreadSanitizer";
  EXPECT_NE(failure_of(divergent_barriers, 64, 0).find("different __syncthreads"),
            std::string::npos);
  EXPECT_NE(failure_of(barrier_without_some, 64, 0).find("__syncthreads"), std::string::npos);
  EXPECT_NE(failure_of(shuffle_without_some, 32, 0).find("warp"), std::string::npos);
  EXPECT_NE(failure_of(partial_mask, 32, 0).find("part of the warp"), std::string::npos);
}

TEST_P(EmulationTest, RefusesAccessesThatADeviceWouldNotMake) {
  if (kThreadSanitizedBuild)
    GTEST_SKIP() << "skipped: lanes that never end leave no order behind for ThreadSanitizer";
  alignas(16) float input[128] = {};
#if !defined(__SANITIZE_ADDRESS__)  // which ends the program
  EXPECT_NE(failure_of(write_beyond, 32, 3).find("beside a shared array"), std::string::npos);
#endif
  EXPECT_EQ(failure_of(write_beyond, 32, 0), "no failure");
  EXPECT_NE(failure_of(forgotten_copy, 32, input).find("asynchronous copies"), std::string::npos);
  EXPECT_NE(failure_of(misaligned_load, 32, input).find("misaligned"), std::string::npos);
  EXPECT_NE(failure_of(divergent_barriers, 48, 0).find("launch of"), std::string::npos);
}

// The last writer among threads that race differs between schedules.
void race(int* winner) { *winner = static_cast<int>(threadIdx.x + 64 * blockIdx.x); }

TEST(EmulationScheduleTest, SeedsChangeTheOrderAndRepeatIt) {
  if (kThreadSanitizedBuild) GTEST_SKIP() << "skipped: its threads race on purpose";
  const auto winners = [](std::uint64_t seed) {
    emulation::set_schedule_seed(seed);
    std::vector<int> result;
    CudaStream stream(0);
    for (int i = 0; i < 4; ++i) {
      int winner = 0;
      launch(race, 4, 64, 0, stream.handle(), &winner);
      stream.synchronize();
      result.push_back(winner);
    }
    emulation::set_schedule_seed(0);
    return result;
  };
  EXPECT_EQ(winners(0), (std::vector<int>{255, 255, 255, 255}));
  EXPECT_EQ(winners(1), winners(1));
  EXPECT_NE(winners(1), winners(2));
}

void conflicting_loads(int stride, std::uint32_t* output) {
  SHARED_ARRAY(Bf16, shared, 32 * 64);
  std::uint32_t loaded[4];
  load_matrices(loaded, shared + threadIdx.x * static_cast<unsigned>(stride));
  output[threadIdx.x] = loaded[0];
}

TEST_P(EmulationTest, CountsBankConflicts) {
  std::uint32_t output[32];
  const auto conflicts_of = [&](int stride) {
    const std::uint64_t before = emulation::statistics().bank_conflicts;
    run(conflicting_loads, 1, 32, 0, stride, output);
    return emulation::statistics().bank_conflicts - before;
  };
  EXPECT_EQ(conflicts_of(8), 0u);
  EXPECT_EQ(conflicts_of(64), 4u * 7);
  EXPECT_EQ(conflicts_of(16), 4u);  // two rows on each 16-byte lane
}

void add_one(int* value) {
  if (threadIdx.x == 0) *value += 1;
}

TEST_P(EmulationTest, RecordsGraphsAndReplaysThem) {
  CudaStream stream(0);
  int value = -1;
  launch(add_one, 1, 32, 0, stream.handle(), &value);  // which loads it
  stream.synchronize();
  stream.begin_capture();
  launch(add_one, 1, 32, 0, stream.handle(), &value);
  launch(add_one, 1, 32, 0, stream.handle(), &value);
  const std::unique_ptr<CudaGraph> graph = stream.end_capture();
  stream.synchronize();
  EXPECT_EQ(value, 0);
  for (int i = 0; i < 3; ++i) stream.launch(*graph);
  EXPECT_EQ(value, 0) << "work waits for a synchronization";
  stream.synchronize();
  EXPECT_EQ(value, 6);
}

INSTANTIATE_TEST_SUITE_P(Seeds, EmulationTest, ::testing::Values(0, 1, 2, 3));

void reads_early_kernel(const uint4* weights, const uint4* input, uint4* output, int mode) {
  const uint4 weight = load_once16(weights + threadIdx.x);
  uint4 value{};
  if (mode == 1) value = load16(input + threadIdx.x);
  if (mode == 2) store16(output + threadIdx.x, weight);
  if (mode != 3) wait_for_previous_kernel();
  if (mode == 0) value = load16(input + threadIdx.x);
  value.x += weight.x;
  if (mode == 0) store16(output + threadIdx.x, value);
}

// The kernel ahead may still be writing what this one reads, or reading what it writes.
TEST(OverlapTest, OnlyWeightsAreReadBeforeTheKernelAheadIsWaitedFor) {
  if (kThreadSanitizedBuild)
    GTEST_SKIP() << "skipped: lanes that never end leave no order behind for ThreadSanitizer";
  const auto failure_of = [](int mode) -> std::string {
    CudaStream stream(0);
    const CudaBuffer memory(3 * 512);
    auto* data = static_cast<uint4*>(memory.data());
    launch_overlapped(reads_early_kernel, 1, 32, 0, stream.handle(), data, data + 32, data + 64,
                      mode);
    try {
      stream.synchronize();
    } catch (const CudaError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(failure_of(0), "");
  EXPECT_NE(failure_of(1).find("before the kernel ahead is waited for"), std::string::npos);
  EXPECT_NE(failure_of(2).find("before the kernel ahead is waited for"), std::string::npos);
  EXPECT_NE(failure_of(3).find("did not wait"), std::string::npos);
}

void loaded_late_kernel(int* value) {
  if (threadIdx.x == 0) *value = 5;
}

TEST(RecordingTest, AKernelIsLoadedBeforeItIsRecorded) {
  CudaStream stream(0);
  const CudaBuffer memory(sizeof(int));
  auto* value = static_cast<int*>(memory.data());
  const auto send = [&] { launch(loaded_late_kernel, 1, 32, 0, stream.handle(), value); };
  stream.begin_capture();
  EXPECT_THROW(send(), CudaError);
  EXPECT_THROW(stream.end_capture(), CudaError);
  send();
  stream.begin_capture();
  send();
  EXPECT_NE(stream.end_capture(), nullptr);
  stream.begin_capture();
  stream.abandon_capture();
  stream.synchronize();
}

TEST(DeviceChoiceTest, OldDevicesAreLeftOutWhereverTheyStand) {
  const auto usable = [](std::vector<int> majors) { return usable_devices(majors); };
  EXPECT_EQ(usable({9, 9}), (std::vector<int>{0, 1}));
  EXPECT_EQ(usable({7, 8, 0, 12}), (std::vector<int>{1, 3}));
  EXPECT_EQ(usable({7}), std::vector<int>{});
}

}  // namespace
}  // namespace batchmill
