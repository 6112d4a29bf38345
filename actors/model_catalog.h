// The models that lines may name, with what preparing and billing need. Immutable but for prices.
// Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "actors/daemon.h"

namespace batchmill {

class ModelCatalog {
 public:
  struct Entry {
    ServedModel served;
    std::int32_t context_tokens = 0;  // min(model, configuration): the longest sequence
    std::int32_t pool_tokens = 0;  // what the device's KV pool can hold at once
    std::string device;
    std::int32_t embedding_size = 0;  // > 0: an encoder, which makes embeddings and no text
  };

  // The first entry is `default`. Throws std::runtime_error when two models share a name.
  explicit ModelCatalog(std::vector<Entry> entries);

  // The model that body.model names, null if none does.
  const Entry* find(const std::string& name) const;
  // True if a model is configured by exactly this name (no alias).
  bool has(const std::string& model_name) const;
  const Entry* find_by_fingerprint(const std::string& fingerprint) const;
  const std::vector<Entry>& entries() const { return entries_; }

  // What a line that finishes now is billed with.
  Price price(const std::string& model_name) const;
  void set_price(const std::string& model_name, const Price& price);

 private:
  std::vector<Entry> entries_;
  std::map<std::string, std::size_t> by_name_;
  std::size_t any_name_ = SIZE_MAX;  // the entry with the alias "*"
  mutable std::mutex mutex_;
  std::map<std::string, Price> prices_;
};

}  // namespace batchmill
