// What the values of a template share: the bodies of strings, containers and callables. Owned by
// the values that refer to them; everything but namespaces, loops, cyclers, joiners and generators
// is immutable, and those are only made inside one render.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/jinja_bigint.h"
#include "engine/jinja_value.h"

namespace batchmill::jinja {

struct Arguments;
struct ForNode;
struct MacroNode;

// A variable's name: its number among the names of its template.
using SymbolId = std::int32_t;

// Destroys what the values refer to, however long the chains are, without deep recursion.
void release(std::vector<Value>&& values);
void release(Value&& value);

struct StringObject : Object {
  explicit StringObject(Text body, bool markup);
  Text text;
  std::size_t num_characters;
  bool is_ascii;
  bool is_markup;  // result of `safe` or `escape`
};

struct BigIntObject : Object {
  explicit BigIntObject(BigInt v) : value(std::move(v)) {}
  BigInt value;
};

struct UndefinedObject : Object {
  std::string message;
  bool is_unsafe = false;
};

struct ListObject : Object {  // list, tuple
  explicit ListObject(std::vector<Value> v) : items(std::move(v)) {}
  ~ListObject() override { release(std::move(items)); }
  std::vector<Value> items;
  bool is_group = false;  // a tuple of `groupby`: has attributes grouper and list
};

struct DictObject : Object {
  explicit DictObject(std::vector<std::pair<Value, Value>> entries);
  ~DictObject() override;
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  std::vector<std::pair<Value, Value>> items;

 private:
  std::unordered_multimap<std::size_t, std::size_t> index_;  // key's hash → item, for large dicts
};

struct DictViewObject : Object {
  enum class What { kItems, kKeys, kValues };
  ~DictViewObject() override { release(std::move(dict)); }
  Value dict;
  What what = What::kItems;
};

struct GeneratorObject : Object {
  explicit GeneratorObject(std::vector<Value> v) : items(std::move(v)) {}
  ~GeneratorObject() override { release(std::move(items)); }
  std::vector<Value> items;
  std::size_t next = 0;
};

struct RangeObject : Object {
  std::int64_t start = 0, stop = 0, step = 1, count = 0;
};

struct NamespaceObject : Object {
  ~NamespaceObject() override { clear(); }
  void clear();
  std::vector<std::pair<std::string, Value>> attributes;
};

// Variables of one scope. `parent` is the scope that encloses it in the template's text.
struct Scope : Object {
  explicit Scope(std::shared_ptr<Scope> p) : parent(std::move(p)) {}
  ~Scope() override { clear(); }
  void clear();
  Value* find(SymbolId symbol);
  void set(SymbolId symbol, Value value);
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<SymbolId, Value>> variables;
};

struct MacroObject : Object {
  const MacroNode* node = nullptr;
  std::shared_ptr<Scope> scope;  // where it was defined
};

using Function = Value (*)(const Arguments&);
struct FunctionObject : Object {
  std::string name;
  Function function = nullptr;
};

using Method = Value (*)(const Value& self, const Arguments&);
struct MethodObject : Object {
  ~MethodObject() override { release(std::move(self)); }
  Value self;
  std::string name;
  Method method = nullptr;
};

struct LoopObject : Object {
  ~LoopObject() override { clear(); }
  void clear();
  std::vector<Value> items;
  std::size_t index = 0;  // 0-based
  std::int32_t depth0 = 0;
  std::optional<Value> last_changed;
  const ForNode* recursive = nullptr;  // set if the loop may be called
  std::shared_ptr<Scope> scope;  // where the recursive loop stands
};

struct CyclerObject : Object {
  ~CyclerObject() override { release(std::move(items)); }
  std::vector<Value> items;
  std::size_t position = 0;
};

struct JoinerObject : Object {
  Value separator;
  bool used = false;
};

}  // namespace batchmill::jinja
