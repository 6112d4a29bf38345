// Builds the tree of a template from its source. Pure function.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/jinja_ast.h"

namespace batchmill::jinja {

// Throws TemplateError: kind "syntax", or "limit" where the source nests deeper than `max_depth`.
Template parse_template(std::string_view source, std::int32_t max_depth);

}  // namespace batchmill::jinja
