#include "engine/jinja_value.h"

#include "engine/jinja_objects.h"
#include "engine/jinja_operators.h"

namespace batchmill::jinja {
namespace {

// Dicts with more keys than this are indexed by hash.
constexpr std::size_t kLinearKeys = 8;

}  // namespace

void release(std::vector<Value>&& values) {
  // Values that fall here while others are being destroyed wait in the list of the outermost call.
  thread_local std::vector<Value>* waiting = nullptr;
  std::vector<Value> local = std::move(values);
  if (waiting != nullptr) {
    for (Value& value : local) {
      if (value.shared() != nullptr && !value.is(Kind::kString)) {
        waiting->push_back(std::move(value));
      }
    }
    return;
  }
  waiting = &local;
  while (!local.empty()) {
    const Value last = std::move(local.back());
    local.pop_back();
  }
  waiting = nullptr;
}

void release(Value&& value) {
  if (value.shared() == nullptr) return;
  std::vector<Value> values;
  values.push_back(std::move(value));
  release(std::move(values));
}

StringObject::StringObject(Text body, bool markup)
    : text(std::move(body)),
      num_characters(count_characters(text.text)),
      is_ascii(num_characters == text.size()),
      is_markup(markup) {}

DictObject::DictObject(std::vector<std::pair<Value, Value>> entries) {
  items.reserve(entries.size());
  for (auto& [key, value] : entries) {
    if (const Value* known = find(key)) {
      const_cast<Value&>(*known) = std::move(value);  // ours, in `items`
      continue;
    }
    items.emplace_back(std::move(key), std::move(value));
    if (items.size() == kLinearKeys + 1) {
      for (std::size_t i = 0; i < items.size(); ++i) index_.emplace(hash_of(items[i].first), i);
    } else if (items.size() > kLinearKeys) {
      index_.emplace(hash_of(items.back().first), items.size() - 1);
    }
  }
}

DictObject::~DictObject() {
  std::vector<Value> values;
  for (auto& [key, value] : items) {
    if (value.shared() != nullptr) values.push_back(std::move(value));
    if (key.shared() != nullptr) values.push_back(std::move(key));
  }
  release(std::move(values));
}

const Value* DictObject::find(const Value& key) const {
  if (items.size() <= kLinearKeys) {
    for (const auto& [k, value] : items) {
      if (equal(k, key)) return &value;
    }
    return nullptr;
  }
  const auto [first, last] = index_.equal_range(hash_of(key));
  for (auto it = first; it != last; ++it) {
    if (equal(items[it->second].first, key)) return &items[it->second].second;
  }
  return nullptr;
}

const Value* DictObject::find(std::string_view key) const {
  if (items.size() > kLinearKeys) return find(Value::string(key));
  for (const auto& [k, value] : items) {
    if (k.is(Kind::kString) && k.string_value() == key) return &value;
  }
  return nullptr;
}

void NamespaceObject::clear() {
  std::vector<Value> values;
  for (auto& [name, value] : attributes) values.push_back(std::move(value));
  attributes.clear();
  release(std::move(values));
}

void Scope::clear() {
  std::vector<Value> values;
  for (auto& [symbol, value] : variables) values.push_back(std::move(value));
  variables.clear();
  release(std::move(values));
}

Value* Scope::find(SymbolId symbol) {
  for (Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
    for (auto& [id, value] : scope->variables) {
      if (id == symbol) return &value;
    }
  }
  return nullptr;
}

void Scope::set(SymbolId symbol, Value value) {
  for (auto& [id, old] : variables) {
    if (id == symbol) {
      old = std::move(value);
      return;
    }
  }
  variables.emplace_back(symbol, std::move(value));
}

void LoopObject::clear() {
  if (last_changed) release(std::move(*last_changed));
  last_changed.reset();
  release(std::move(items));
  items.clear();
}

Value Value::none() {
  Value out;
  out.kind_ = Kind::kNone;
  return out;
}

Value Value::boolean(bool value) {
  Value out;
  out.kind_ = Kind::kBoolean;
  out.integer_ = value ? 1 : 0;
  return out;
}

Value Value::integer(std::int64_t value) {
  Value out;
  out.kind_ = Kind::kInteger;
  out.integer_ = value;
  return out;
}

Value Value::integer(std::string_view decimal) {
  const bool is_negative = !decimal.empty() && decimal.front() == '-';
  const BigInt magnitude = BigInt::from_digits(decimal.substr(is_negative ? 1 : 0));
  return normalized(is_negative ? magnitude.negated() : magnitude);
}

Value Value::floating(double value) {
  Value out;
  out.kind_ = Kind::kFloating;
  out.floating_ = value;
  return out;
}

Value Value::string(std::string_view text) { return Value::text(Text(text)); }

Value Value::marked_string(std::string_view text) { return Value::text(Text(text, true)); }

Value Value::text(Text text, bool is_markup) {
  return object(Kind::kString, std::make_shared<StringObject>(std::move(text), is_markup));
}

Value Value::list(std::vector<Value> items) {
  return object(Kind::kList, std::make_shared<ListObject>(std::move(items)));
}

Value Value::tuple(std::vector<Value> items) {
  return object(Kind::kTuple, std::make_shared<ListObject>(std::move(items)));
}

Value Value::dict(std::vector<std::pair<std::string, Value>> items) {
  std::vector<std::pair<Value, Value>> entries;
  entries.reserve(items.size());
  for (auto& [key, value] : items) entries.emplace_back(marked_string(key), std::move(value));
  return dict_of(std::move(entries));
}

Value Value::dict_of(std::vector<std::pair<Value, Value>> items) {
  return object(Kind::kDict, std::make_shared<DictObject>(std::move(items)));
}

Value Value::object(Kind kind, std::shared_ptr<Object> object) {
  Value out;
  out.kind_ = kind;
  out.object_ = std::move(object);
  return out;
}

Value Value::undefined(std::string message, bool is_unsafe) {
  auto body = std::make_shared<UndefinedObject>();
  body->message = std::move(message);
  body->is_unsafe = is_unsafe;
  return object(Kind::kUndefined, std::move(body));
}

const Text& Value::text_value() const { return as<StringObject>().text; }

const std::vector<Value>& Value::items() const { return as<ListObject>().items; }

}  // namespace batchmill::jinja
