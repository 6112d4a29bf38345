#include "engine/jinja_arguments.h"

#include "engine/jinja_operators.h"
#include "engine/jinja_runtime.h"

namespace batchmill::jinja {

std::int64_t BoundArguments::integer(std::size_t i, std::int64_t fallback) const {
  return has(i) ? index_value(*values_[i]) : fallback;
}

Text BoundArguments::text(std::size_t i, std::string_view fallback) const {
  if (!has(i)) return Text(fallback);
  if (!values_[i]->is(Kind::kString)) {
    type_error("argument must be str, not " + type_name(*values_[i]));
  }
  return values_[i]->text_value();
}

bool BoundArguments::truth(std::size_t i, bool fallback) const {
  return has(i) ? truthy(*values_[i]) : fallback;
}

BoundArguments Arguments::bind(const char* function, std::initializer_list<const char*> parameters,
                               std::size_t required) const {
  BoundArguments out;
  out.values_.resize(parameters.size());
  if (positional.size() > parameters.size()) {
    type_error(std::string(function) + "() takes at most " + std::to_string(parameters.size()) +
               " arguments (" + std::to_string(positional.size()) + " given)");
  }
  for (std::size_t i = 0; i < positional.size(); ++i) out.values_[i] = positional[i];
  for (const auto& [name, value] : named) {
    std::size_t i = 0;
    while (i < parameters.size() && name != parameters.begin()[i]) ++i;
    if (i == parameters.size()) {
      type_error(std::string(function) + "() got an unexpected keyword argument '" + name + "'");
    }
    if (out.values_[i]) {
      type_error(std::string(function) + "() got multiple values for argument '" + name + "'");
    }
    out.values_[i] = value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (!out.values_[i]) {
      type_error(std::string(function) + "() missing required argument: '" + parameters.begin()[i] +
                 "'");
    }
  }
  return out;
}

const Value* Arguments::find(std::string_view name) const {
  for (const auto& [key, value] : named) {
    if (key == name) return &value;
  }
  return nullptr;
}

}  // namespace batchmill::jinja
