#include "actors/prompt_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <variant>

#include "actors/json_bridge.h"

namespace batchmill {
namespace {

[[noreturn]] void refuse(const char* code, std::string message) {
  throw LineRefused({code, std::move(message)});
}

// The developer role is a newer spelling of system: templates that do not know it get system.
Json with_known_roles(Json messages, const ChatTemplate& chat_template) {
  if (chat_template.source().find("developer") != std::string::npos) return messages;
  for (Json& message : messages) {
    if (message.value("role", "") == "developer") message["role"] = "system";
  }
  return messages;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

bool came_from_a_message(const MarkedText& rendered, std::size_t begin, std::size_t end) {
  const auto holds = [&](std::size_t at) {
    return std::ranges::any_of(
        rendered.marked, [&](const ByteSpan& span) { return span.begin <= at && at < span.end; });
  };
  return begin < end && holds(begin) && holds(end - 1);
}

// Where `content` last stands. What the template itself writes may hold it too ("<" is in
// "<|im_end|>"), so text that came from a message goes before.
std::size_t find_last(const MarkedText& rendered, std::string_view content) {
  const std::size_t last = rendered.text.rfind(content);
  for (std::size_t at = last; at != std::string::npos;
       at = at == 0 ? std::string::npos : rendered.text.rfind(content, at - 1)) {
    if (came_from_a_message(rendered, at, at + content.size())) return at;
  }
  return last;
}

// Takes away what the template wrote behind the last message's content, so that the model goes on
// inside that message.
void cut_behind_last_message(const Json& messages, MarkedText* rendered) {
  const std::string content = messages.back().value("content", "");
  const std::string_view wanted = trimmed(content);
  std::size_t at = find_last(*rendered, content);
  std::size_t size = content.size();
  if (at == std::string::npos) {
    at = find_last(*rendered, wanted);
    size = wanted.size();
  }
  if (wanted.empty() || at == std::string::npos) {
    refuse(
        "invalid_value",
        "body.continue_final_message: the last message's text is empty or does not appear in the "
        "rendered prompt, so it cannot be continued");
  }
  rendered->text.resize(at + size);
  std::erase_if(rendered->marked,
                [&](const ByteSpan& span) { return span.begin >= rendered->text.size(); });
  if (!rendered->marked.empty()) {
    rendered->marked.back().end = std::min(rendered->marked.back().end, rendered->text.size());
  }
}

const Tokenizer& required_tokenizer(const Model& model, const char* field) {
  if (model.tokenizer() == nullptr) {
    refuse("invalid_value",
           fmt::format("{}: the model ships no tokenizer, so it must be token ids", field));
  }
  return *model.tokenizer();
}

std::vector<TokenId> checked_ids(const std::vector<std::int64_t>& given, const Model& model,
                                 const char* field) {
  const std::int32_t vocab_size = model.config().vocab_size;
  std::vector<TokenId> ids;
  ids.reserve(given.size());
  for (const std::int64_t id : given) {
    if (id < 0 || id >= vocab_size) {
      refuse("invalid_value", fmt::format("{}: token id {} is outside the vocabulary (0 … {})",
                                          field, id, vocab_size - 1));
    }
    ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

}  // namespace

MarkedText render_chat(const BatchBody& body, const ChatTemplate& chat_template,
                       std::int64_t now_s) {
  const Json messages = with_known_roles(body.messages, chat_template);
  std::vector<std::pair<std::string, jinja::Value>> variables;
  if (body.chat_template_kwargs.is_object()) {
    for (const auto& [name, value] : body.chat_template_kwargs.items()) {
      variables.emplace_back(name, to_jinja(value));
    }
  }
  const auto set = [&](const char* name, jinja::Value value) {
    std::erase_if(variables, [&](const auto& variable) { return variable.first == name; });
    variables.emplace_back(name, std::move(value));
  };
  set("messages", to_jinja(messages));
  set("tools", to_jinja(body.tools));
  set("documents", jinja::Value::none());
  set("add_generation_prompt",
      jinja::Value::boolean(body.add_generation_prompt && !body.continue_final_message));
  MarkedText rendered = chat_template.render(jinja::Value::dict(std::move(variables)), now_s);
  if (body.continue_final_message) cut_behind_last_message(messages, &rendered);
  return rendered;
}

Prompts chat_prompt(const BatchBody& body, const Model& model, std::int64_t now_s) {
  if (model.tokenizer() == nullptr || model.chat_template() == nullptr) {
    refuse("template_error", "the model ships no chat template: send its lines to /v1/completions");
  }
  MarkedText rendered;
  try {
    rendered = render_chat(body, *model.chat_template(), now_s);
  } catch (const TemplateError& error) {
    refuse("template_error",
           error.kind() == "raise_exception"
               ? std::string(error.what())
               : fmt::format("the chat template failed ({}{}): {}", error.kind(),
                             error.line() > 0 ? fmt::format(", line {}", error.line()) : "",
                             error.what()));
  }
  Prompts prompts;
  prompts.token_ids.push_back(model.tokenizer()->encode(rendered));
  if (prompts.token_ids.front().empty()) {
    refuse("invalid_value", "body.messages: the rendered prompt has no tokens");
  }
  prompts.texts.push_back(std::move(rendered.text));
  return prompts;
}

Prompts completion_prompts(const BatchBody& body, const Model& model) {
  const Tokenizer* tokenizer = model.tokenizer();
  Prompts prompts;
  for (const auto& prompt : body.prompts) {
    std::vector<TokenId> ids;
    if (const auto* text = std::get_if<std::string>(&prompt)) {
      ids = required_tokenizer(model, "body.prompt").encode(*text, /*parse_special=*/true);
      const TokenId bos = tokenizer->vocabulary().bos_token;
      if (tokenizer->vocabulary().add_bos && bos != kNoToken &&
          (ids.empty() || ids.front() != bos)) {
        ids.insert(ids.begin(), bos);
      }
      prompts.texts.push_back(*text);
    } else {
      ids = checked_ids(std::get<std::vector<std::int64_t>>(prompt), model, "body.prompt");
      prompts.texts.push_back(tokenizer == nullptr ? "" : tokenizer->decode(ids, true));
    }
    if (ids.empty()) refuse("invalid_value", "body.prompt: the prompt has no tokens");
    prompts.token_ids.push_back(std::move(ids));
  }
  return prompts;
}

Prompts embedding_inputs(const BatchBody& body, const Model& model) {
  Prompts inputs;
  for (const auto& input : body.prompts) {
    std::vector<TokenId> ids;
    if (const auto* text = std::get_if<std::string>(&input)) {
      const Tokenizer& tokenizer = required_tokenizer(model, "body.input");
      const Vocabulary& vocabulary = tokenizer.vocabulary();
      if (vocabulary.add_bos && vocabulary.bos_token != kNoToken) {
        ids.push_back(vocabulary.bos_token);
      }
      const std::vector<TokenId> words = tokenizer.encode(*text, /*parse_special=*/false);
      ids.insert(ids.end(), words.begin(), words.end());
      if (vocabulary.add_eos && vocabulary.eos_token != kNoToken) {
        ids.push_back(vocabulary.eos_token);
      }
    } else {
      ids = checked_ids(std::get<std::vector<std::int64_t>>(input), model, "body.input");
    }
    if (ids.empty()) refuse("invalid_value", "body.input: an input has no tokens");
    inputs.token_ids.push_back(std::move(ids));
  }
  return inputs;
}

}  // namespace batchmill
