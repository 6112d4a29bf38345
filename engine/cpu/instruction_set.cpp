#include "engine/cpu/instruction_set.h"

namespace batchmill {

const char* instruction_set_name(InstructionSet set) {
  switch (set) {
    case InstructionSet::kBaseline:
      return "baseline";
    case InstructionSet::kAvx2:
      return "avx2";
    case InstructionSet::kAvx512:
      return "avx512";
    case InstructionSet::kAvx512Vnni:
      return "avx512_vnni";
    case InstructionSet::kAvx512Bf16:
      return "avx512_bf16";
  }
  return "unknown";
}

bool has_tile_products() {
  return __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16");
}

std::vector<InstructionSet> supported_instruction_sets() {
  std::vector<InstructionSet> sets = {InstructionSet::kBaseline};
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return sets;
  sets.push_back(InstructionSet::kAvx2);
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (!avx512) return sets;
  sets.push_back(InstructionSet::kAvx512);
  if (!__builtin_cpu_supports("avx512vnni")) return sets;
  sets.push_back(InstructionSet::kAvx512Vnni);
  if (__builtin_cpu_supports("avx512bf16")) sets.push_back(InstructionSet::kAvx512Bf16);
  return sets;
}

InstructionSet best_instruction_set() { return supported_instruction_sets().back(); }

}  // namespace batchmill
