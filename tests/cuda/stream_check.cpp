#include "cuda/stream.h"

#include <new>
#include <numeric>

#include "cuda/row_kernels.h"
#include "tests/cuda/check.h"

namespace batchmill::testing {

KERNEL_CHECK(copies_come_back) {
  std::vector<std::int32_t> numbers(100003);
  std::iota(numbers.begin(), numbers.end(), -5);
  const DeviceArray<std::int32_t> first(&check, numbers);
  const DeviceArray<std::int32_t> second(&check, numbers.size());
  check.queue().copy_on_device(second.data(), first.data(), numbers.size() * 4);
  check.queue().fill(first.data(), 0, 8);
  check.expect(second.read() == numbers, "a copy on the device is not what it was made of");
  numbers[0] = numbers[1] = 0;
  check.expect(first.read() == numbers, "8 bytes were to be filled");
}

// A recording has the addresses; what lies there is read when it runs.
KERNEL_CHECK(recordings_read_what_is_there_when_they_run) {
  constexpr int kRows = 5;
  constexpr int kCols = 64;
  const std::vector<float> table = check.normal(kRows * kCols);
  const DeviceArray<float> input(&check, table);
  const DeviceArray<float> output(&check, kCols);
  const DeviceArray<std::int32_t> index(&check, std::vector<std::int32_t>{0});
  CudaStream& queue = check.queue();
  queue.begin_capture();
  launch_gather(index.data(), input.data(), output.data(), 1, kCols, check.stream());
  const std::unique_ptr<CudaGraph> graph = queue.end_capture();
  PinnedBuffer staging(sizeof(std::int32_t));
  CudaEvent sent;
  for (const std::int32_t row : {3, 1, 4}) {
    sent.wait();
    std::memcpy(staging.data(), &row, sizeof(row));
    queue.copy_to_device(index.data(), staging.data(), sizeof(row));
    sent.record(queue);
    queue.launch(*graph);
    const std::vector<float> expected(table.begin() + row * kCols,
                                      table.begin() + (row + 1) * kCols);
    check.expect(output.read() == expected, "row " + std::to_string(row));
  }
}

KERNEL_CHECK(memory_that_is_not_there_is_refused) {
  bool was_refused = false;
  try {
    CudaBuffer buffer(std::size_t{1} << 46);
  } catch (const std::bad_alloc&) {
    was_refused = true;
  }
  check.expect(was_refused, "64 TiB were given");
  const DeviceArray<std::int32_t> after(&check, std::vector<std::int32_t>{7});
  check.expect(after.read() == std::vector<std::int32_t>{7}, "the device is of no use afterwards");
}

KERNEL_CHECK(devices_that_are_not_there_are_refused) {
  bool was_refused = false;
  try {
    CudaStream stream(99);
  } catch (const CudaError&) {
    was_refused = true;
  }
  check.expect(was_refused, "device 99 was given");
}

}  // namespace batchmill::testing
