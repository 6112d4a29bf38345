// The response body of an embeddings line, in OpenAI's form. Free functions; any thread.
#pragma once

#include <span>
#include <string>

#include "actors/output_line.h"
#include "queue/wire.h"

namespace batchmill {

// {"object": "list", "data": [{"object": "embedding", "index", "embedding"}], "model", "usage"}.
Json embedding_body(const Success& success);

// The vector as base64 of little-endian float32 (RFC 4648, padded).
std::string base64_floats(std::span<const float> values);

}  // namespace batchmill
