#include "cuda/row_kernels.h"

#include <algorithm>
#include <cmath>

#include "tests/cuda/check.h"

namespace batchmill::testing {
namespace {

constexpr int kCols = 1096;  // more than one turn of a block
constexpr int kTableRows = 9;
const std::vector<std::int32_t> kIds = {8, 0, 3, 3, 7};

std::size_t at(std::int32_t row, int col) {
  return static_cast<std::size_t>(row) * kCols + static_cast<std::size_t>(col);
}

}  // namespace

KERNEL_CHECK(embed) {
  const std::vector<float> table = rounded(check.normal(kTableRows * kCols));
  const DeviceArray<std::uint16_t> device(&check, bf16_of(table));
  const DeviceArray<std::int32_t> ids(&check, kIds);
  const DeviceArray<float> output(&check, kIds.size() * kCols);
  launch_embed(ids.data(), device.data(), 3.0f, output.data(), 5, kCols, check.stream());
  std::vector<double> expected;
  for (const std::int32_t id : kIds) {
    for (int i = 0; i < kCols; ++i) expected.push_back(3.0 * table[at(id, i)]);
  }
  check.expect_near("rows", output.read(), expected, 1e-7);
}

KERNEL_CHECK(gather_and_add_rows) {
  const std::vector<float> table = check.normal(kTableRows * kCols);
  const std::vector<float> before = check.normal(kIds.size() * kCols);
  const DeviceArray<float> device(&check, table);
  const DeviceArray<std::int32_t> ids(&check, kIds);
  const DeviceArray<float> gathered(&check, before.size());
  const DeviceArray<float> sum(&check, before);
  launch_gather(ids.data(), device.data(), gathered.data(), 5, kCols, check.stream());
  launch_add_rows(ids.data(), device.data(), sum.data(), 5, kCols, check.stream());
  std::vector<double> rows;
  std::vector<double> sums;
  for (std::int32_t r = 0; r < 5; ++r) {
    for (int i = 0; i < kCols; ++i) {
      const double value = table[at(kIds[static_cast<std::size_t>(r)], i)];
      rows.push_back(value);
      sums.push_back(value + before[at(r, i)]);
    }
  }
  check.expect_near("gathered", gathered.read(), rows, 0.0);
  check.expect_near("added", sum.read(), sums, 1e-7);
}

// A draw that chose no token gives one all the same: the row has to have an embedding.
KERNEL_CHECK(take_drawn) {
  constexpr std::int32_t kDrawn = 200;  // more than a block
  std::vector<std::int32_t> ids(300, 5);
  std::vector<std::int32_t> chosen(150);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    chosen[i] = i % 9 == 4 ? -1 : static_cast<std::int32_t>(1000 + i);
  }
  std::vector<std::int32_t> drawn;  // [kDrawn][2]
  std::vector<std::int32_t> expected = ids;
  for (std::int32_t i = 0; i < kDrawn; ++i) {
    const std::int32_t place = i + i / 3;
    const std::int32_t draw = i * 7 % 150;
    drawn.insert(drawn.end(), {place, draw});
    expected[static_cast<std::size_t>(place)] = std::max(chosen[static_cast<std::size_t>(draw)], 0);
  }
  const DeviceArray<std::int32_t> device_ids(&check, ids);
  const DeviceArray<std::int32_t> device_chosen(&check, chosen);
  const DeviceArray<std::int32_t> device_drawn(&check, drawn);
  launch_take_drawn(device_drawn.data(), device_chosen.data(), device_ids.data(), kDrawn,
                    check.stream());
  check.expect(device_ids.read() == expected, "rows have other tokens");
}

KERNEL_CHECK(mean_rows) {
  const std::vector<std::int32_t> begins = {0, 1, 8};
  const std::vector<float> input = check.normal(8 * kCols);
  const DeviceArray<float> device(&check, input);
  const DeviceArray<std::int32_t> device_begins(&check, begins);
  const DeviceArray<float> output(&check, 2 * kCols);
  launch_mean(device_begins.data(), device.data(), output.data(), 2, kCols, check.stream());
  std::vector<double> expected(2 * kCols);
  for (std::size_t s = 0; s < 2; ++s) {
    double squares = 0;
    for (int i = 0; i < kCols; ++i) {
      double& sum = expected[at(static_cast<std::int32_t>(s), i)];
      for (std::int32_t row = begins[s]; row < begins[s + 1]; ++row) sum += input[at(row, i)];
      squares += sum * sum;
    }
    for (int i = 0; i < kCols; ++i) {
      expected[at(static_cast<std::int32_t>(s), i)] /= std::sqrt(squares);
    }
  }
  check.expect_near("means", output.read(), expected, 1e-6);
}

KERNEL_CHECK(copy_blocks) {
  constexpr std::size_t kBlocks = 5;
  constexpr std::size_t kLayers = 2;
  constexpr std::size_t kParts = 6;
  constexpr std::size_t kTokens = 16;
  constexpr std::size_t kRowBytes = 32;
  // Five tokens' scales take the next three with them.
  for (const std::size_t scale_bytes : {std::size_t{0}, std::size_t{4}}) {
    const std::size_t part_bytes = kTokens * (kRowBytes + scale_bytes);
    const std::size_t layer_bytes = kBlocks * kParts * part_bytes;
    std::vector<std::uint8_t> cache(kLayers * layer_bytes);
    for (std::uint8_t& byte : cache) byte = static_cast<std::uint8_t>(check.random());
    const std::vector<std::int32_t> copies = {4, 1, 16, 0, 2, 5};
    const DeviceArray<std::uint8_t> device(&check, cache);
    const DeviceArray<std::int32_t> device_copies(&check, copies);
    launch_block_copy({device_copies.data(), device.data(), static_cast<long long>(layer_bytes),
                       static_cast<int>(kParts), static_cast<int>(kTokens),
                       static_cast<int>(kRowBytes), static_cast<int>(scale_bytes)},
                      2, kLayers, check.stream());
    std::vector<std::uint8_t> expected = cache;
    for (std::size_t c = 0; c < copies.size(); c += 3) {
      const auto tokens = static_cast<std::size_t>(copies[c + 2]);
      for (std::size_t layer = 0; layer < kLayers; ++layer) {
        for (std::size_t part = 0; part < kParts; ++part) {
          const auto copy = [&](std::size_t first, std::size_t bytes) {
            const auto begin = [&](std::int32_t block) {
              return layer * layer_bytes +
                     (static_cast<std::size_t>(block) * kParts + part) * part_bytes + first;
            };
            for (std::size_t i = 0; i < bytes; ++i) {
              expected[begin(copies[c + 1]) + i] = cache[begin(copies[c]) + i];
            }
          };
          copy(0, tokens * kRowBytes);
          copy(kTokens * kRowBytes, (tokens + 3) / 4 * 4 * scale_bytes);
        }
      }
    }
    check.expect(device.read() == expected, "copies the tokens of each part and nothing else");
  }
}

}  // namespace batchmill::testing
