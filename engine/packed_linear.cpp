#include "engine/packed_linear.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cctype>
#include <cstring>
#include <stdexcept>

#include "engine/safetensors_floats.h"

namespace batchmill {
namespace {

constexpr std::int64_t kPerWord = 8;  // numbers of four bits in a word
constexpr std::array<std::int64_t, kPerWord> kAwqOrder = {0, 2, 4, 6, 1, 3, 5, 7};

std::uint32_t load_word(const SafetensorsTensor& tensor, std::int64_t index) {
  std::uint32_t word = 0;
  std::memcpy(&word, tensor.bytes.data() + index * 4, sizeof(word));
  return word;
}

std::uint8_t nibble(std::uint32_t word, std::int64_t index) {
  return static_cast<std::uint8_t>((word >> (4 * index)) & 15);
}

[[noreturn]] void fail(const SafetensorsFolder::Entry& entry, const std::string& message) {
  throw std::runtime_error(entry.file->path() + ": tensor '" + entry.tensor->name + "' " + message);
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const std::int64_t size : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(size);
  }
  return text + "]";
}

void check(const SafetensorsFolder::Entry& entry, const std::vector<std::int64_t>& shape,
           bool words) {
  if (entry.tensor->shape != shape) {
    fail(entry, "has shape " + shape_text(entry.tensor->shape) + ", not " + shape_text(shape));
  }
  const std::string& dtype = entry.tensor->dtype;
  if (words ? dtype != "I32" && dtype != "U32" : !float_type(dtype)) {
    fail(entry, "has dtype " + dtype + ", which is not supported here");
  }
}

}  // namespace

PackedFormat read_packed_format(const ConfigObject& quantization) {
  PackedFormat format;
  const std::string method = quantization.string("quant_method", "");
  if (method != "awq" && method != "gptq") quantization.refuse("quant_method");
  format.awq = method == "awq";
  const char* bits = quantization.has("bits") ? "bits" : "w_bit";
  if (quantization.integer(bits, 1, 64) != 4) quantization.refuse(bits);
  const char* group = quantization.has("group_size") ? "group_size" : "q_group_size";
  format.group_size = std::max(quantization.integer(group, -1, 1 << 20, 128), 0);
  if (format.awq) {
    std::string version = quantization.string("version", "gemm");
    std::transform(version.begin(), version.end(), version.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (version != "gemm") quantization.refuse("version");
    if (!quantization.boolean("zero_point", true)) quantization.refuse("zero_point");
    return format;
  }
  const std::string layout = quantization.string("checkpoint_format", "gptq");
  if (layout != "gptq" && layout != "gptq_v2") quantization.refuse("checkpoint_format");
  format.zero_offset = layout == "gptq" ? 1 : 0;
  if (quantization.string("pack_dtype", "int32") != "int32") quantization.refuse("pack_dtype");
  if (quantization.boolean("is_marlin_format", false)) quantization.refuse("is_marlin_format");
  if (quantization.has("dynamic")) quantization.refuse("dynamic");
  return format;
}

PackedLinear::PackedLinear(const SafetensorsFolder& files, const std::string& name,
                           const PackedFormat& format)
    : format_(format) {
  const auto required = [&](const char* part) {
    const Entry* entry = files.find(name + part);
    if (entry != nullptr) return *entry;
    const Entry* weights = files.find(name + ".qweight");
    throw std::runtime_error((weights == nullptr ? std::string() : weights->file->path() + ": ") +
                             "tensor '" + name + part + "' is missing");
  };
  weights_ = required(".qweight");
  zeros_ = required(".qzeros");
  scales_ = required(".scales");
  if (const Entry* index = files.find(name + ".g_idx")) group_index_ = *index;
  check_shapes();
}

void PackedLinear::check_shapes() {
  const std::vector<std::int64_t>& packed = weights_.tensor->shape;
  if (packed.size() != 2 || packed[0] < 1 || packed[1] < 1) {
    fail(weights_, "has shape " + shape_text(packed) + ", not two dimensions");
  }
  check(weights_, packed, true);
  in_ = packed[0] * (format_.awq ? 1 : kPerWord);
  out_ = packed[1] * (format_.awq ? kPerWord : 1);
  if (in_ % kBlock != 0) fail(weights_, "has " + std::to_string(in_) + " inputs, not eights");
  if (out_ % kPerWord != 0) fail(weights_, "has " + std::to_string(out_) + " outputs, not eights");
  const std::int64_t group_size = format_.group_size == 0 ? in_ : format_.group_size;
  num_groups_ = (in_ + group_size - 1) / group_size;
  check(scales_, {num_groups_, out_}, false);
  check(zeros_, {num_groups_, out_ / kPerWord}, true);
  groups_.resize(static_cast<std::size_t>(in_));
  for (std::int64_t i = 0; i < in_; ++i) {
    groups_[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i / group_size);
  }
  if (group_index_.tensor != nullptr) read_group_index();
}

void PackedLinear::read_group_index() {
  check(group_index_, {in_}, true);
  for (std::int64_t i = 0; i < in_; ++i) {
    const std::uint32_t group = load_word(*group_index_.tensor, i);
    if (group >= num_groups_) {
      fail(group_index_, "gives input " + std::to_string(i) + " group " + std::to_string(group) +
                             " of " + std::to_string(num_groups_));
    }
    groups_[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(group);
  }
}

std::size_t PackedLinear::bytes() const {
  std::size_t sum = 0;
  for (const Entry& entry : {weights_, zeros_, scales_, group_index_}) {
    if (entry.tensor != nullptr) sum += entry.tensor->bytes.size();
  }
  return sum;
}

void PackedLinear::release() const {
  for (const Entry& entry : {weights_, zeros_, scales_, group_index_}) {
    if (entry.tensor != nullptr) entry.file->release(*entry.tensor);
  }
}

PackedLinear::Groups PackedLinear::read_groups(std::int64_t first, std::int64_t count) const {
  Groups groups;
  groups.scales.resize(static_cast<std::size_t>(num_groups_ * count));
  groups.zeros.resize(groups.scales.size());
  for (std::int64_t g = 0; g < num_groups_; ++g) {
    read_floats(*scales_.tensor, g * out_ + first, count, groups.scales.data() + g * count);
    float* zeros = groups.zeros.data() + g * count;
    for (std::int64_t word = 0; word < count; word += kPerWord) {
      const std::uint32_t bits = load_word(*zeros_.tensor, (g * out_ + first + word) / kPerWord);
      for (std::int64_t n = 0; n < kPerWord; ++n) {
        const std::uint32_t stored = nibble(bits, n);
        zeros[word + (format_.awq ? kAwqOrder[static_cast<std::size_t>(n)] : n)] =
            static_cast<float>(static_cast<std::int32_t>(stored) + format_.zero_offset);
      }
    }
  }
  return groups;
}

void PackedLinear::unpack_block(std::int64_t input, std::int64_t first, std::int64_t count,
                                Block* block) const {
  if (format_.awq) {
    for (std::int64_t i = 0; i < kBlock; ++i) {
      for (std::int64_t word = 0; word < count; word += kPerWord) {
        const std::uint32_t bits =
            load_word(*weights_.tensor, ((input + i) * out_ + first + word) / kPerWord);
        for (std::int64_t n = 0; n < kPerWord; ++n) {
          (*block)[word + kAwqOrder[static_cast<std::size_t>(n)]][i] = nibble(bits, n);
        }
      }
    }
    return;
  }
  for (std::int64_t column = 0; column < count; ++column) {
    const std::uint32_t bits =
        load_word(*weights_.tensor, input / kPerWord * out_ + first + column);
    for (std::int64_t n = 0; n < kPerWord; ++n) (*block)[column][n] = nibble(bits, n);
  }
}

void PackedLinear::read_rows(std::int64_t first, std::int64_t count, float* output) const {
  assert(first % kPerWord == 0 && count % kPerWord == 0 && count <= kStripRows);
  const Groups groups = read_groups(first, count);
  Block block;
  for (std::int64_t input = 0; input < in_; input += kBlock) {
    unpack_block(input, first, count, &block);
    const std::int32_t* group = groups_.data() + input;
    for (std::int64_t column = 0; column < count; ++column) {
      float* row = output + column * in_ + input;
      for (std::int64_t i = 0; i < kBlock; ++i) {
        const auto at = static_cast<std::size_t>(group[i] * count + column);
        row[i] = groups.scales[at] * (static_cast<float>(block[column][i]) - groups.zeros[at]);
      }
    }
  }
}

}  // namespace batchmill
