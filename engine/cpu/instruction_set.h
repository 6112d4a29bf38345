// The vector instruction sets that kernels exist for, best last.
#pragma once

#include <cstdint>
#include <vector>

namespace batchmill {

enum class InstructionSet : std::uint8_t {
  kBaseline = 0,
  kAvx2,
  kAvx512,
  kAvx512Vnni,
  kAvx512Bf16
};

const char* instruction_set_name(InstructionSet set);

// This processor multiplies tiles of bf16 (AMX), which oneDNN uses.
bool has_tile_products();

// What this processor and operating system can run; never empty.
std::vector<InstructionSet> supported_instruction_sets();
InstructionSet best_instruction_set();

}  // namespace batchmill
