// What the model is asked: messages with their template variables, or prompts.
#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>

#include "queue/body_fields.h"

namespace batchmill {
namespace {

// One element of a content array, appended to `text`. `name`: "messages[0].content[1]".
void read_content_part(const Json& part, const std::string& name, FieldReader* body,
                       std::string* text) {
  if (part.is_string()) {
    text->append(part.get_ref<const std::string&>());
    return;
  }
  if (!part.is_object()) return body->fail_value(name, "an object with a \"type\"", part);
  FieldReader fields(part, body->path(name) + ".", body->error());
  const Json* const type = fields.require("type");
  if (type == nullptr) return;
  if (!type->is_string()) return fields.fail_value("type", "a string", *type);
  for (const std::string_view known : {"text", "input_text", "output_text"}) {
    if (!is_text(*type, known)) continue;
    if (fields.require("text") == nullptr) return;
    if (const auto value = fields.string("text")) text->append(*value);
    return;
  }
  if (is_text(*type, "refusal")) {
    if (const auto value = fields.string("refusal")) text->append(*value);
    return;
  }
  fields.fail_unsupported("type", *type);
}

void read_content(const std::string& name, Json* message, FieldReader* body) {
  const auto content = message->find("content");
  if (content == message->end()) {
    const auto calls = message->find("tool_calls");
    const bool has_calls = calls != message->end() && calls->is_array() && !calls->empty();
    if (!has_calls && !is_text((*message)["role"], "assistant")) {
      return body->fail_missing(name + ".content");
    }
    (*message)["content"] = "";
  } else if (content->is_null()) {
    *content = "";
  } else if (content->is_array()) {
    std::string text;
    for (std::size_t i = 0; i < content->size(); ++i) {
      read_content_part((*content)[i], fmt::format("{}.content[{}]", name, i), body, &text);
    }
    *content = std::move(text);
  } else if (!content->is_string()) {
    body->fail_value(name + ".content", "a string, null or an array of text parts", *content);
  }
}

void read_message(const std::string& name, Json* message, FieldReader* body) {
  if (!message->is_object()) return body->fail_value(name, "an object", *message);
  FieldReader fields(*message, body->path(name) + ".", body->error());
  if (const Json* const role = fields.require("role")) {
    if (!role->is_string() || role->get_ref<const std::string&>().empty()) {
      fields.fail_value("role", "a string that is not empty", *role);
    }
  }
  for (const char* const field : {"name", "tool_call_id", "reasoning_content", "reasoning"}) {
    fields.string(field);
  }
  if (const Json* const audio = fields.find("audio")) fields.fail_unsupported("audio", *audio);
  if (const Json* const calls = fields.find("tool_calls")) {
    bool good = calls->is_array();
    for (const Json& call : *calls) good = good && call.is_object();
    if (!good) fields.fail_value("tool_calls", "an array of objects", *calls);
  }
  if (!body->failed()) read_content(name, message, body);
}

void read_tools(FieldReader* body, BatchBody* out) {
  const Json* const tools = body->find("tools");
  if (tools == nullptr) return;
  if (!tools->is_array()) return body->fail_value("tools", "an array of objects", *tools);
  for (std::size_t i = 0; i < tools->size(); ++i) {
    const Json& tool = (*tools)[i];
    const std::string name = fmt::format("tools[{}]", i);
    if (!tool.is_object()) return body->fail_value(name, "an object", tool);
    FieldReader fields(tool, body->path(name) + ".", body->error());
    const Json* const type = fields.find("type");
    if (type != nullptr && !type->is_string()) return fields.fail_value("type", "a string", *type);
    if (type != nullptr && !is_text(*type, "function")) {
      return fields.fail_unsupported("type", *type);
    }
    const Json* const function = fields.require("function");
    if (function == nullptr) return;
    if (!function->is_object()) return fields.fail_value("function", "an object", *function);
    FieldReader inner(*function, fields.path("function."), body->error());
    if (inner.require("name") == nullptr || !inner.string("name")) return;
  }
  if (!tools->empty()) out->tools = *tools;
}

bool is_token_list(const Json& value) {
  return value.is_array() && !value.empty() && value.front().is_number();
}

void read_prompt(const std::string& name, const Json& value, FieldReader* body, BatchBody* out) {
  if (value.is_string()) {
    if (value.get_ref<const std::string&>().empty()) {
      return body->fail_value(name, "a text that is not empty", value);
    }
    out->prompts.emplace_back(value.get<std::string>());
    return;
  }
  if (!is_token_list(value)) {
    return body->fail_value(name, "a text or an array of token ids, not empty", value);
  }
  std::vector<std::int64_t> ids;
  ids.reserve(value.size());
  for (const Json& item : value) {
    const auto id = as_integer(item);
    if (!id || *id < 0 || *id > kMaxTokenId) {
      return body->fail_value(fmt::format("{}[{}]", name, ids.size()), "a token id", item);
    }
    ids.push_back(*id);
  }
  out->prompts.emplace_back(std::move(ids));
}

}  // namespace

void read_messages(FieldReader* body, BatchBody* out) {
  const Json* const messages = body->require("messages");
  if (messages == nullptr) return;
  if (!messages->is_array() || messages->empty()) {
    return body->fail_value("messages", "an array of at least one message", *messages);
  }
  out->messages = *messages;
  for (std::size_t i = 0; i < out->messages.size() && !body->failed(); ++i) {
    read_message(fmt::format("messages[{}]", i), &out->messages[i], body);
  }
}

void read_template_fields(FieldReader* body, BatchBody* out) {
  read_tools(body, out);
  if (const Json* const variables = body->find("chat_template_kwargs")) {
    if (!variables->is_object()) {
      return body->fail_value("chat_template_kwargs", "an object", *variables);
    }
    out->chat_template_kwargs = *variables;
  }
  if (const Json* const documents = body->find("documents")) {
    bool good = documents->is_array();
    for (const Json& document : *documents) good = good && document.is_object();
    if (!good) return body->fail_value("documents", "an array of objects", *documents);
  }
  body->string("reasoning_effort");
  // Both are template variables; chat_template_kwargs, the more explicit form, wins.
  for (const char* const name : {"documents", "reasoning_effort"}) {
    const Json* const value = body->find(name);
    if (value == nullptr) continue;
    if (out->chat_template_kwargs.is_null()) out->chat_template_kwargs = Json::object();
    if (!out->chat_template_kwargs.contains(name)) out->chat_template_kwargs[name] = *value;
  }
  const bool asked_for_both = body->boolean("continue_final_message", false) &&
                              body->boolean("add_generation_prompt", false);
  if (asked_for_both) {
    body->fail("invalid_value",
               "body.add_generation_prompt and body.continue_final_message cannot both be true");
  }
  out->continue_final_message = body->boolean("continue_final_message", false);
  out->drop_oldest_turns = body->string("truncation") == "auto";
  out->add_generation_prompt =
      body->boolean("add_generation_prompt", true) && !out->continue_final_message;
  for (const Json* const value : {&out->messages, &out->tools, &out->chat_template_kwargs}) {
    if (!body->failed() && holds_infinity(*value)) {
      body->fail("invalid_value", "body holds a number beyond the range of 64-bit floats");
    }
  }
}

void read_prompts(std::string_view name, FieldReader* body, BatchBody* out) {
  const Json* const prompt = body->require(name);
  if (prompt == nullptr) return;
  if (!prompt->is_array() || is_token_list(*prompt)) {
    return read_prompt(std::string(name), *prompt, body, out);
  }
  if (prompt->empty()) return body->fail_value(name, "a prompt or a list of prompts", *prompt);
  const bool texts = prompt->front().is_string();
  for (std::size_t i = 0; i < prompt->size() && !body->failed(); ++i) {
    const Json& item = (*prompt)[i];
    const std::string item_name = fmt::format("{}[{}]", name, i);
    if (item.is_string() != texts) {
      return body->fail_value(item_name, texts ? "a text, like the first" : "an array of token ids",
                              item);
    }
    read_prompt(item_name, item, body, out);
  }
}

void read_embedding_fields(const BatchLineLimits& limits, FieldReader* body, BatchBody* out) {
  if (out->prompts.size() > static_cast<std::size_t>(limits.max_inputs)) {
    body->fail("invalid_value", fmt::format("body.input must be at most {} inputs, is {}",
                                            limits.max_inputs, out->prompts.size()));
  }
  if (const Json* const format = body->find("encoding_format")) {
    if (!is_text(*format, "float") && !is_text(*format, "base64")) {
      return body->fail_value("encoding_format", "\"float\" or \"base64\"", *format);
    }
    out->base64 = is_text(*format, "base64");
  }
  out->dimensions = body->integer("dimensions", 1);
}

}  // namespace batchmill
