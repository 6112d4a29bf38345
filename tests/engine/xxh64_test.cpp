#include "engine/xxh64.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <random>
#include <vector>

namespace batchmill {
namespace {

TEST(Xxh64Test, EqualsTheReferenceAtEveryLength) {
  std::mt19937 random(3);
  std::vector<std::byte> bytes(300);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    const std::uint64_t seed = size % 3 == 0 ? 0 : random();
    EXPECT_EQ(xxh64(std::span(bytes).first(size), seed), XXH64(bytes.data(), size, seed)) << size;
  }
}

}  // namespace
}  // namespace batchmill
