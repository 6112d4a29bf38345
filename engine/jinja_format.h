// Python's two ways of string formatting: 'a %s' % x and 'a {}'.format(x). Free functions; marks of
// the format and of its arguments are kept.
#pragma once

#include "engine/jinja_arguments.h"
#include "engine/jinja_value.h"

namespace batchmill::jinja {

Text format_percent(const Value& format, const Value& arguments);
Text format_braces(const Text& format, const Arguments& arguments);
Text format_value(const Value& value, const Text& spec);  // format(value, spec)

}  // namespace batchmill::jinja
