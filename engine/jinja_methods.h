// Attributes of the values themselves: str, dict and list methods, loop variables.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/jinja_objects.h"

namespace batchmill::jinja {

// The attribute or bound method, or nothing.
std::optional<Value> find_attribute(const Value& object, const std::string& name);

// Python has this name on every object ("__class__", …).
bool is_object_attribute(std::string_view name);

// A method that changes a list or dict: the sandbox does not hand it out.
bool is_mutator(const Value& object, std::string_view name);

// A method of str; null if there is none.
Method find_string_method(std::string_view name);

}  // namespace batchmill::jinja
