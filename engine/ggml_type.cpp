#include "engine/ggml_type.h"

#include <array>

namespace batchmill {
namespace {

struct Entry {
  std::uint32_t id;
  GgmlTypeInfo info;
};

// Ids 4, 5 and 31 to 33, 36 to 38 were withdrawn from the format.
constexpr std::array kEntries = {
    Entry{0, {"F32", 1, 4, true}},          Entry{1, {"F16", 1, 2, true}},
    Entry{2, {"Q4_0", 32, 18, true}},       Entry{3, {"Q4_1", 32, 20, true}},
    Entry{6, {"Q5_0", 32, 22, true}},       Entry{7, {"Q5_1", 32, 24, true}},
    Entry{8, {"Q8_0", 32, 34, true}},       Entry{9, {"Q8_1", 32, 36, false}},
    Entry{10, {"Q2_K", 256, 84, true}},     Entry{11, {"Q3_K", 256, 110, true}},
    Entry{12, {"Q4_K", 256, 144, true}},    Entry{13, {"Q5_K", 256, 176, true}},
    Entry{14, {"Q6_K", 256, 210, true}},    Entry{15, {"Q8_K", 256, 292, false}},
    Entry{16, {"IQ2_XXS", 256, 66, false}}, Entry{17, {"IQ2_XS", 256, 74, false}},
    Entry{18, {"IQ3_XXS", 256, 98, false}}, Entry{19, {"IQ1_S", 256, 50, false}},
    Entry{20, {"IQ4_NL", 32, 18, true}},    Entry{21, {"IQ3_S", 256, 110, false}},
    Entry{22, {"IQ2_S", 256, 82, false}},   Entry{23, {"IQ4_XS", 256, 136, false}},
    Entry{24, {"I8", 1, 1, false}},         Entry{25, {"I16", 1, 2, false}},
    Entry{26, {"I32", 1, 4, false}},        Entry{27, {"I64", 1, 8, false}},
    Entry{28, {"F64", 1, 8, false}},        Entry{29, {"IQ1_M", 256, 56, false}},
    Entry{30, {"BF16", 1, 2, true}},        Entry{34, {"TQ1_0", 256, 54, false}},
    Entry{35, {"TQ2_0", 256, 66, false}},   Entry{39, {"MXFP4", 32, 17, true}},
    Entry{40, {"NVFP4", 64, 36, false}},    Entry{41, {"Q1_0", 128, 18, false}},
};

}  // namespace

const GgmlTypeInfo* find_type_info(GgmlType type) {
  for (const Entry& entry : kEntries) {
    if (entry.id == static_cast<std::uint32_t>(type)) return &entry.info;
  }
  return nullptr;
}

std::string type_name(GgmlType type) {
  const GgmlTypeInfo* info = find_type_info(type);
  if (info != nullptr) return info->name;
  return std::to_string(static_cast<std::uint32_t>(type));
}

}  // namespace batchmill
