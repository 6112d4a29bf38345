// Python's operators on template values: truth, equality, order, arithmetic, iteration, membership.
// Free functions; they count their work in the thread's Runtime and throw TemplateError.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/jinja_ast.h"
#include "engine/jinja_bigint.h"
#include "engine/jinja_value.h"

namespace batchmill::jinja {

std::string type_name(const Value& value);  // "int", "str", "NoneType", …

bool truthy(const Value& value);
bool equal(const Value& a, const Value& b);
bool less(const Value& a, const Value& b);  // TypeError where there is no order
bool compare(Operator op, const Value& a, const Value& b);
bool contains(const Value& container, const Value& item);
std::size_t hash_of(const Value& value);  // TypeError if unhashable
bool is_hashable(const Value& value);

Value arithmetic(Operator op, const Value& a, const Value& b);
Value negate(const Value& value);
Value plus(const Value& value);

// Integers of any size; the result is small where it fits.
Value normalized(const BigInt& value);
BigInt big_value(const Value& value);  // integer or boolean
double double_value(const Value& value);  // number; OverflowError if too large
std::int64_t index_value(const Value& value);  // integer or boolean, else TypeError

// len(); nothing if the value has none.
std::optional<std::size_t> length_of(const Value& value);
std::vector<Value> iterate(const Value& value);  // TypeError if it cannot be
bool is_iterable(const Value& value);

// UndefinedError (or SecurityError) that tells what was undefined.
[[noreturn]] void undefined_error(const Value& value);

// obj.name, obj[key], obj[start:stop:step] as the sandboxed environment reads them.
Value get_attribute(const Value& object, const std::string& name);
Value get_item(const Value& object, const Value& key);
Value get_slice(const Value& object, const Value& start, const Value& stop, const Value& step);

}  // namespace batchmill::jinja
