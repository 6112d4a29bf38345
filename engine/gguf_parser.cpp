// Opening a GGUF file: everything that reads bytes nobody has checked yet.
#include <bit>
#include <cstring>
#include <stdexcept>

#include "engine/gguf.h"

namespace batchmill {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place");

constexpr std::uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr std::uint64_t kMaxKeys = 1 << 16;
constexpr std::uint64_t kMaxTensors = 1 << 20;
constexpr std::uint64_t kMaxNameBytes = 65535;
constexpr std::uint64_t kMaxAlignment = 1 << 20;
constexpr std::uint64_t kDefaultAlignment = 32;
// The smallest entries that can be: an empty key with a one-byte value; a tensor of no dimensions.
constexpr std::uint64_t kMinKeyBytes = 8 + 4 + 1;
constexpr std::uint64_t kMinTensorBytes = 8 + 4 + 4 + 8;

// Bytes of a scalar in the file; 0 for strings, arrays and unknown types.
std::uint64_t scalar_bytes(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  return 0;
}

// A name from the file as an error message can show it.
std::string quoted(std::string_view name) {
  constexpr std::size_t kMaxShown = 80;
  std::string text = "'";
  for (const char c : name.substr(0, kMaxShown)) {
    text += (c < 0x20 || c == 0x7f) ? '?' : c;
  }
  if (name.size() > kMaxShown) text += "…";
  return text + "'";
}

}  // namespace

class GgufFile::Parser {
 public:
  explicit Parser(GgufFile* file) : out_(*file), bytes_(file->file_.bytes()) {}

  void parse() {
    place_ = "the header";
    if (bytes_.size() < 24) fail("the file has " + std::to_string(bytes_.size()) + " bytes");
    if (read<std::uint32_t>() != kMagic) fail("it does not begin with GGUF");
    const auto version = read<std::uint32_t>();
    if (version == 0x02000000 || version == 0x03000000) fail("the file is big-endian");
    if (version != 2 && version != 3) fail("version " + std::to_string(version) + " is unknown");
    const auto num_tensors = read<std::uint64_t>();
    const auto num_keys = read<std::uint64_t>();
    check_count("keys", num_keys, kMaxKeys, kMinKeyBytes);
    check_count("tensors", num_tensors, kMaxTensors, kMinTensorBytes);
    for (std::uint64_t i = 0; i < num_keys; ++i) parse_key(i);
    for (std::uint64_t i = 0; i < num_tensors; ++i) parse_tensor_entry(i);
    locate_tensors();
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error(out_.path_ + ": damaged GGUF file: " + place_ + " (byte " +
                             std::to_string(offset_) + "): " + what);
  }

  std::uint64_t left() const { return bytes_.size() - offset_; }

  void need(std::uint64_t count) const {
    if (count > left()) {
      fail("needs " + std::to_string(count) + " bytes, the file has " + std::to_string(left()) +
           " more");
    }
  }

  template <typename T>
  T read() {
    need(sizeof(T));
    T value;
    std::memcpy(&value, bytes_.data() + offset_, sizeof(T));
    offset_ += sizeof(T);
    return value;
  }

  std::string_view read_string() {
    const auto length = read<std::uint64_t>();
    need(length);
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data() + offset_), length);
    offset_ += length;
    return text;
  }

  std::string_view read_name() {
    const auto name = read_string();
    if (name.empty()) fail("its name is empty");
    if (name.size() > kMaxNameBytes) fail("its name has " + std::to_string(name.size()) + " bytes");
    return name;
  }

  void check_count(const char* what, std::uint64_t count, std::uint64_t most,
                   std::uint64_t entry_bytes) const {
    if (count > most || count > left() / entry_bytes) {
      fail("it says there are " + std::to_string(count) + " " + what);
    }
  }

  GgufType read_type() {
    const auto type = read<std::uint32_t>();
    if (type > static_cast<std::uint32_t>(GgufType::kFloat64)) {
      fail("value type " + std::to_string(type) + " is unknown");
    }
    return static_cast<GgufType>(type);
  }

  void parse_key(std::uint64_t index) {
    place_ = "metadata entry " + std::to_string(index);
    const std::string_view key = read_name();
    place_ = "metadata " + quoted(key);
    GgufValue value;
    value.type = read_type();
    value.value = read_value(value.type);
    if (!out_.metadata_.emplace(key, value).second) fail("the key is there twice");
    out_.keys_.push_back(key);
  }

  decltype(GgufValue::value) read_value(GgufType type) {
    switch (type) {
      case GgufType::kUint8:
        return std::uint64_t{read<std::uint8_t>()};
      case GgufType::kInt8:
        return std::int64_t{read<std::int8_t>()};
      case GgufType::kUint16:
        return std::uint64_t{read<std::uint16_t>()};
      case GgufType::kInt16:
        return std::int64_t{read<std::int16_t>()};
      case GgufType::kUint32:
        return std::uint64_t{read<std::uint32_t>()};
      case GgufType::kInt32:
        return std::int64_t{read<std::int32_t>()};
      case GgufType::kUint64:
        return read<std::uint64_t>();
      case GgufType::kInt64:
        return read<std::int64_t>();
      case GgufType::kFloat32:
        return double{read<float>()};
      case GgufType::kFloat64:
        return read<double>();
      case GgufType::kBool: {
        const auto value = read<std::uint8_t>();
        if (value > 1) fail("a bool has the value " + std::to_string(value));
        return value == 1;
      }
      case GgufType::kString:
        return read_string();
      case GgufType::kArray:
        return read_array();
    }
    fail("value type is unknown");
  }

  GgufArray read_array() {
    GgufArray array;
    array.element_type = read_type();
    if (array.element_type == GgufType::kArray) fail("arrays of arrays are not supported");
    array.size = read<std::uint64_t>();
    const std::uint64_t begin = offset_;
    const std::uint64_t element_bytes = scalar_bytes(array.element_type);
    // A string is at least its length field.
    if (array.size > left() / (element_bytes > 0 ? element_bytes : 8)) {
      fail("it says it has " + std::to_string(array.size) + " elements");
    }
    if (element_bytes > 0) {
      offset_ += array.size * element_bytes;
    } else {
      for (std::uint64_t i = 0; i < array.size; ++i) read_string();
    }
    array.bytes = bytes_.subspan(begin, offset_ - begin);
    return array;
  }

  void parse_tensor_entry(std::uint64_t index) {
    place_ = "tensor entry " + std::to_string(index);
    GgufTensor tensor;
    tensor.name = read_name();
    place_ = "tensor " + quoted(tensor.name);
    const auto num_dims = read<std::uint32_t>();
    if (num_dims > tensor.dims.size()) fail("it has " + std::to_string(num_dims) + " dimensions");
    tensor.num_dims = static_cast<std::int32_t>(num_dims);
    std::uint64_t elements = 1;
    for (std::uint32_t i = 0; i < num_dims; ++i) {
      tensor.dims[i] = read<std::uint64_t>();
      if (tensor.dims[i] == 0) fail("dimension " + std::to_string(i) + " is 0");
      // No type has less than an eighth of a byte per element, so more cannot be in the file.
      if (tensor.dims[i] > bytes_.size() * 8 / elements) {
        fail("its dimensions say more than the file holds");
      }
      elements *= tensor.dims[i];
    }
    tensor.type = static_cast<GgmlType>(read<std::uint32_t>());
    const auto offset = read<std::uint64_t>();
    if (!out_.tensor_index_.emplace(tensor.name, out_.tensors_.size()).second) {
      fail("the name is there twice");
    }
    out_.tensors_.push_back(tensor);
    offsets_.push_back(offset);
  }

  void locate_tensors() {
    place_ = "metadata 'general.alignment'";
    const std::uint64_t alignment = static_cast<std::uint64_t>(
        out_.integer("general.alignment").value_or(std::int64_t{kDefaultAlignment}));
    if (!std::has_single_bit(alignment) || alignment > kMaxAlignment) {
      fail("the alignment is " + std::to_string(alignment));
    }
    const std::uint64_t data = (offset_ + alignment - 1) / alignment * alignment;
    for (std::size_t i = 0; i < out_.tensors_.size(); ++i) {
      GgufTensor& tensor = out_.tensors_[i];
      place_ = "tensor " + quoted(tensor.name);
      if (offsets_[i] % alignment != 0) {
        fail("its offset " + std::to_string(offsets_[i]) + " is not a multiple of " +
             std::to_string(alignment));
      }
      if (data > bytes_.size() || offsets_[i] > bytes_.size() - data) {
        fail("its offset " + std::to_string(offsets_[i]) + " is beyond the end of the file");
      }
      const std::uint64_t begin = data + offsets_[i];
      tensor.bytes = bytes_.subspan(begin, checked_bytes(tensor, bytes_.size() - begin));
    }
  }

  std::uint64_t checked_bytes(const GgufTensor& tensor, std::uint64_t available) const {
    const GgmlTypeInfo* info = find_type_info(tensor.type);
    if (info == nullptr) return available;
    const auto block_elements = static_cast<std::uint64_t>(info->block_elements);
    if (tensor.dims[0] % block_elements != 0) {
      fail("its rows have " + std::to_string(tensor.dims[0]) + " elements, " + info->name +
           " needs a multiple of " + std::to_string(block_elements));
    }
    // Elements are at most 8 × the file's bytes, so this cannot overflow.
    const std::uint64_t size =
        tensor.num_elements() / block_elements * static_cast<std::uint64_t>(info->block_bytes);
    if (size > available) {
      fail("needs " + std::to_string(size) + " bytes, the file has " + std::to_string(available) +
           " more");
    }
    return size;
  }

  GgufFile& out_;
  std::span<const std::byte> bytes_;
  std::uint64_t offset_ = 0;
  std::string place_;
  std::vector<std::uint64_t> offsets_;  // of tensors, from the start of the data
};

GgufFile::GgufFile(const std::string& path, OnePart) : path_(path), file_(path) {
  Parser(this).parse();
}

GgufFile::GgufFile(const std::string& path) : GgufFile(path, OnePart{}) { open_other_parts(); }

}  // namespace batchmill
