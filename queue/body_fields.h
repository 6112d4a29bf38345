// The parts of reading a request body: which fields mean something here, and the fields that do.
// Free functions, any thread. Each reports a fault through its FieldReader.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "queue/batch_line.h"
#include "queue/field_reader.h"

namespace batchmill {

// Refuses fields of OpenAI's and vLLM's APIs that ask for something that is not built, unless their
// value asks for nothing (null, false, the default), and appends the names of unknown fields
// ("body.foo") to `ignored`, at most kMaxIgnoredFields of them.
void check_field_names(Endpoint endpoint, FieldReader* body, std::vector<std::string>* ignored);

inline constexpr std::size_t kMaxIgnoredFields = 32;

// Appends a field's name, shortened, unless the list is full or has it.
void add_ignored_field(std::string name, std::vector<std::string>* ignored);

// Chat: messages, tools and what the template is given.
void read_messages(FieldReader* body, BatchBody* out);
void read_template_fields(FieldReader* body, BatchBody* out);

// Completions' "prompt", embeddings' "input": a text, token ids, or a list of either.
void read_prompts(std::string_view name, FieldReader* body, BatchBody* out);

// Embeddings: the form of the vectors, and how many inputs there may be.
void read_embedding_fields(const BatchLineLimits& limits, FieldReader* body, BatchBody* out);

// Lengths, sampling, stops, n and log-probabilities.
void read_sampling(Endpoint endpoint, const BatchLineLimits& limits, FieldReader* body,
                   BatchBody* out);

}  // namespace batchmill
