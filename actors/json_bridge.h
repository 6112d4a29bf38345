// JSON values as Jinja values.
#pragma once

#include "engine/jinja_value.h"
#include "queue/wire.h"

namespace batchmill {

// Strings become marked: they came from a user and are never read as control tokens. Dict keys keep
// their order. Integers beyond 64 bits arrive as floats.
jinja::Value to_jinja(const Json& json);

}  // namespace batchmill
