#include "actors/model_catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace batchmill {

ModelCatalog::ModelCatalog(std::vector<Entry> entries) : entries_(std::move(entries)) {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const ServedModel& served = entries_[i].served;
    std::vector<std::string> names = served.aliases;
    names.push_back(served.name);
    for (const std::string& name : names) {
      if (name == "*") {
        any_name_ = i;
      } else if (const auto [it, fresh] = by_name_.emplace(name, i); !fresh && it->second != i) {
        throw std::runtime_error(fmt::format("two models are called '{}'", name));
      }
    }
    prices_[served.name] = served.price;
  }
  if (!entries_.empty()) by_name_.emplace("default", 0);
}

const ModelCatalog::Entry* ModelCatalog::find(const std::string& name) const {
  if (const auto it = by_name_.find(name); it != by_name_.end()) return &entries_[it->second];
  return any_name_ == SIZE_MAX ? nullptr : &entries_[any_name_];
}

bool ModelCatalog::has(const std::string& model_name) const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const Entry& entry) { return entry.served.name == model_name; });
}

const ModelCatalog::Entry* ModelCatalog::find_by_fingerprint(const std::string& fingerprint) const {
  for (const Entry& entry : entries_) {
    if (entry.served.model->fingerprint() == fingerprint) return &entry;
  }
  return nullptr;
}

Price ModelCatalog::price(const std::string& model_name) const {
  const std::lock_guard lock(mutex_);
  const auto it = prices_.find(model_name);
  return it == prices_.end() ? Price{} : it->second;
}

void ModelCatalog::set_price(const std::string& model_name, const Price& price) {
  const std::lock_guard lock(mutex_);
  prices_[model_name] = price;
}

}  // namespace batchmill
