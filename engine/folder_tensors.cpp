#include "engine/folder_tensors.h"

#include <algorithm>
#include <set>
#include <utility>

#include "engine/safetensors_floats.h"

namespace batchmill {
namespace {

constexpr std::int64_t kStripRows = PackedLinear::kStripRows;

struct Shape {
  std::int64_t rows = 1;
  std::int64_t cols = 0;
  bool operator==(const Shape&) const = default;
};

std::string text_of(const Shape& shape) {
  return std::to_string(shape.rows) + " rows of " + std::to_string(shape.cols);
}

// As [out, in].
Shape shape_of(const SafetensorsTensor& tensor, bool transposed) {
  Shape shape;
  shape.cols = tensor.shape.empty() ? 1 : tensor.shape.back();
  if (shape.cols > 0) shape.rows = tensor.num_elements() / shape.cols;
  if (transposed) std::swap(shape.rows, shape.cols);
  return shape;
}

// The name of a packed linear layer's arrays without their endings, or "".
std::string packed_base(const std::string& name) {
  constexpr std::string_view kWeight = ".weight";
  return name.ends_with(kWeight) ? name.substr(0, name.size() - kWeight.size()) : std::string();
}

bool all_zero(const SafetensorsTensor& tensor) {
  return std::all_of(tensor.bytes.begin(), tensor.bytes.end(),
                     [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

FolderTensors::FolderTensors(std::string path, std::shared_ptr<const SafetensorsFolder> files,
                             const FolderConfig& config)
    : path_(std::move(path)), files_(std::move(files)) {
  FolderNames names;
  try {
    names = map_folder_names(config, *files_);
  } catch (const std::runtime_error& error) {
    fail(error.what());
  }
  infos_.reserve(names.tensors.size());
  sources_.reserve(names.tensors.size());
  for (const TensorMapping& mapping : names.tensors) add(mapping, config);
  for (std::size_t i = 0; i < infos_.size(); ++i) index_.emplace(infos_[i].name, i);
  check_all_used(config, names);
}

FolderTensors::Part FolderTensors::open_part(const std::string& name,
                                             const FolderConfig& config) const {
  const SafetensorsFolder::Entry* entry = files_->find(name);
  if (entry != nullptr) return *entry;
  const std::string base = packed_base(name);
  if (base.empty() || files_->find(base + ".qweight") == nullptr) {
    fail("tensor '" + name + "' is missing");
  }
  if (!config.packed) {
    fail("tensor '" + base + ".qweight' is quantized, but config.json has no quantization_config");
  }
  return PackedLinear(*files_, base, *config.packed);
}

void FolderTensors::add(const TensorMapping& mapping, const FolderConfig& config) {
  Source source{.parts = {}, .transposed = mapping.transposed, .added = mapping.added};
  TensorInfo info;
  info.name = mapping.name;
  Shape first_shape;
  for (const std::string& name : mapping.sources) {
    Part part = open_part(name, config);
    Shape shape;
    std::string type;
    if (const auto* linear = std::get_if<PackedLinear>(&part)) {
      shape = {linear->out_features(), linear->in_features()};
      type = config.packed->name();
      info.bytes += linear->bytes();
    } else {
      const SafetensorsTensor& tensor = *std::get<SafetensorsFolder::Entry>(part).tensor;
      shape = shape_of(tensor, mapping.transposed);
      type = tensor.dtype;
      info.readable = info.readable && float_type(tensor.dtype).has_value();
      info.bytes += tensor.bytes.size();
    }
    if (source.parts.empty()) {
      first_shape = shape;
      info.type = type;
    }
    if (shape != first_shape || type != info.type) {
      fail("tensor '" + name + "' is " + text_of(shape) + " of type " + type +
           ", the first expert " + text_of(first_shape) + " of type " + info.type);
    }
    source.parts.push_back(std::move(part));
  }
  info.cols = first_shape.cols;
  info.rows = first_shape.rows * static_cast<std::int64_t>(source.parts.size());
  infos_.push_back(std::move(info));
  sources_.push_back(std::move(source));
}

void FolderTensors::check_all_used(const FolderConfig& config, const FolderNames& names) const {
  std::set<std::string, std::less<>> used;
  std::set<std::string, std::less<>> packed;
  for (const TensorMapping& mapping : names.tensors) {
    for (const std::string& name : mapping.sources) {
      used.insert(name);
      const std::string base = packed_base(name);
      if (!config.packed || base.empty()) continue;
      packed.insert(base);
      for (const char* part : {".qweight", ".qzeros", ".scales", ".g_idx"}) {
        used.insert(base + part);
      }
    }
  }
  for (const SafetensorsFolder::Entry& entry : files_->tensors()) {
    const std::string& name = entry.tensor->name;
    if (used.contains(name) || is_unused_array(config, names, name)) continue;
    // Quantizing software writes a bias of zeros where the model has none.
    constexpr std::string_view kBias = ".bias";
    if (name.ends_with(kBias) && packed.contains(name.substr(0, name.size() - kBias.size())) &&
        all_zero(*entry.tensor)) {
      continue;
    }
    throw std::runtime_error(entry.file->path() + ": tensor '" + name +
                             "' is not part of architecture '" + config.model.architecture +
                             "' as it is supported");
  }
}

const TensorInfo* FolderTensors::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &infos_[found->second];
}

const FolderTensors::Source& FolderTensors::of(const TensorInfo& info) const {
  return sources_[static_cast<std::size_t>(&info - infos_.data())];
}

void FolderTensors::read_row(const TensorInfo& tensor, std::int64_t row, float* output) const {
  const Source& source = of(tensor);
  const std::int64_t rows_per_part = tensor.rows / static_cast<std::int64_t>(source.parts.size());
  const auto* plain = std::get_if<SafetensorsFolder::Entry>(
      &source.parts[static_cast<std::size_t>(row / rows_per_part)]);
  if (plain != nullptr && !source.transposed) {
    read_floats(*plain->tensor, row % rows_per_part * tensor.cols, tensor.cols, output);
  } else {
    // Strips do not cross parts.
    const std::int64_t in_part = row % rows_per_part;
    const std::int64_t in_strip = in_part % kStripRows;
    const std::int64_t count = std::min(kStripRows, rows_per_part - (in_part - in_strip));
    const auto strip = strip_at(source, row - in_strip, count, tensor.cols);
    std::copy_n(strip->data() + in_strip * tensor.cols, tensor.cols, output);
  }
  if (source.added != 0.0f) {
    for (std::int64_t i = 0; i < tensor.cols; ++i) output[i] += source.added;
  }
}

std::shared_ptr<const std::vector<float>> FolderTensors::strip_at(const Source& source,
                                                                  std::int64_t first,
                                                                  std::int64_t count,
                                                                  std::int64_t cols) const {
  const std::thread::id thread = std::this_thread::get_id();
  {
    const std::lock_guard lock(mutex_);
    const auto own = strips_.find(thread);
    if (own != strips_.end() && own->second.source == &source && own->second.first == first) {
      return own->second.rows;
    }
  }
  auto rows = std::make_shared<std::vector<float>>(static_cast<std::size_t>(count * cols));
  read_strip(source, first, count, cols, rows->data());
  const std::lock_guard lock(mutex_);
  strips_[thread] = {&source, first, rows};
  return rows;
}

void FolderTensors::read_strip(const Source& source, std::int64_t first, std::int64_t count,
                               std::int64_t cols, float* output) const {
  const TensorInfo& info = infos_[static_cast<std::size_t>(&source - sources_.data())];
  const std::int64_t rows_per_part = info.rows / static_cast<std::int64_t>(source.parts.size());
  const Part& part = source.parts[static_cast<std::size_t>(first / rows_per_part)];
  const std::int64_t in_part = first % rows_per_part;
  if (const auto* linear = std::get_if<PackedLinear>(&part)) {
    linear->read_rows(in_part, count, output);
    return;
  }
  const SafetensorsTensor& tensor = *std::get<SafetensorsFolder::Entry>(part).tensor;
  std::vector<float> line(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < cols; ++i) {
    read_floats(tensor, i * rows_per_part + in_part, count, line.data());
    for (std::int64_t row = 0; row < count; ++row) {
      output[row * cols + i] = line[static_cast<std::size_t>(row)];
    }
  }
}

void FolderTensors::release(const TensorInfo& tensor) const {
  const Source& source = of(tensor);
  for (const Part& part : source.parts) {
    if (const auto* linear = std::get_if<PackedLinear>(&part)) {
      linear->release();
    } else {
      const auto& entry = std::get<SafetensorsFolder::Entry>(part);
      entry.file->release(*entry.tensor);
    }
  }
  const std::lock_guard lock(mutex_);
  std::erase_if(strips_, [&](const auto& strip) { return strip.second.source == &source; });
}

}  // namespace batchmill
