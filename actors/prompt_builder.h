// The token ids of a line's prompts, from its messages or its prompt field.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "engine/model.h"
#include "queue/batch_line.h"

namespace batchmill {

// The line cannot run with this model. Ends the preparing of one line and nothing else.
class LineRefused : public std::exception {
 public:
  explicit LineRefused(LineError error) : error_(std::move(error)) {}
  const LineError& error() const { return error_; }
  const char* what() const noexcept override { return error_.message.c_str(); }

 private:
  LineError error_;
};

struct Prompts {
  std::vector<std::vector<TokenId>> token_ids;  // [prompts], none empty
  std::vector<std::string> texts;  // [prompts] as echo shows them
};

// Renders the model's chat template over the body's messages and tokenizes it; what came from the
// body is never read as control tokens. `now_s`: what the template's clock shows. Throws
// LineRefused.
Prompts chat_prompt(const BatchBody& body, const Model& model, std::int64_t now_s);

// The rendered text alone, with its marks.
MarkedText render_chat(const BatchBody& body, const ChatTemplate& chat_template,
                       std::int64_t now_s);

// Texts are read with control tokens; ids are taken as they are. Throws LineRefused.
Prompts completion_prompts(const BatchBody& body, const Model& model);

// The sequences of an embeddings line. Texts are read without control tokens and get those that
// begin and end a sequence (CLS, SEP); ids are taken as they are. `texts` stays empty. Throws
// LineRefused.
Prompts embedding_inputs(const BatchBody& body, const Model& model);

}  // namespace batchmill
