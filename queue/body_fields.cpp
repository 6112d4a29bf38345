#include "queue/body_fields.h"

#include <string_view>
#include <unordered_map>

#include "queue/json_reader.h"

namespace batchmill {
namespace {

enum class FieldRule : std::uint8_t {
  kHonoured,  // read elsewhere
  kHarmless,  // asks for nothing that could change the answer
  kRefused,  // accepted only as null, false, [], {} or ""
  kTrueOnly,  // accepted only as true
  kOneOnly,  // accepted only as 1
  kSpecial,  // has a rule of its own below
};

enum Endpoints : std::uint8_t { kChat = 1, kText = 2, kEmbed = 4, kBoth = 3, kAll = 7 };

struct FieldEntry {
  FieldRule rule;
  std::uint8_t endpoints;  // elsewhere the field is unknown
};

const std::unordered_map<std::string_view, FieldEntry>& field_table() {
  using enum FieldRule;
  static const std::unordered_map<std::string_view, FieldEntry> table = {
      {"model", {kHonoured, kAll}},
      {"messages", {kHonoured, kChat}},
      {"prompt", {kHonoured, kText}},
      {"input", {kHonoured, kEmbed}},
      {"max_tokens", {kHonoured, kBoth}},
      {"max_completion_tokens", {kHonoured, kBoth}},
      {"min_tokens", {kHonoured, kBoth}},
      {"ignore_eos", {kHonoured, kBoth}},
      {"temperature", {kHonoured, kBoth}},
      {"top_p", {kHonoured, kBoth}},
      {"top_k", {kHonoured, kBoth}},
      {"min_p", {kHonoured, kBoth}},
      {"seed", {kHonoured, kBoth}},
      {"stop", {kHonoured, kBoth}},
      {"stop_token_ids", {kHonoured, kBoth}},
      {"presence_penalty", {kHonoured, kBoth}},
      {"frequency_penalty", {kHonoured, kBoth}},
      {"repetition_penalty", {kHonoured, kBoth}},
      {"logit_bias", {kHonoured, kBoth}},
      {"logprobs", {kHonoured, kBoth}},
      {"top_logprobs", {kHonoured, kChat}},
      {"n", {kHonoured, kBoth}},
      {"echo", {kHonoured, kText}},
      {"return_token_ids", {kHonoured, kBoth}},
      {"encoding_format", {kHonoured, kEmbed}},
      {"dimensions", {kHonoured, kEmbed}},
      {"tools", {kHonoured, kChat}},
      {"chat_template_kwargs", {kHonoured, kChat}},
      {"add_generation_prompt", {kHonoured, kChat}},
      {"continue_final_message", {kHonoured, kChat}},
      {"documents", {kHonoured, kChat}},
      {"reasoning_effort", {kHonoured, kChat}},

      {"user", {kHarmless, kAll}},
      {"metadata", {kHarmless, kAll}},
      {"store", {kHarmless, kAll}},
      {"service_tier", {kHarmless, kAll}},
      {"safety_identifier", {kHarmless, kAll}},
      {"prompt_cache_key", {kHarmless, kAll}},
      {"prompt_cache_retention", {kHarmless, kAll}},
      {"prediction", {kHarmless, kChat}},
      {"parallel_tool_calls", {kHarmless, kChat}},
      {"priority", {kHarmless, kAll}},
      {"request_id", {kHarmless, kAll}},

      {"stream", {kSpecial, kAll}},
      {"stream_options", {kRefused, kAll}},
      {"response_format", {kSpecial, kBoth}},
      {"tool_choice", {kSpecial, kChat}},
      {"function_call", {kSpecial, kChat}},
      {"modalities", {kSpecial, kChat}},
      {"verbosity", {kSpecial, kChat}},
      {"best_of", {kSpecial, kBoth}},
      {"add_special_tokens", {kSpecial, kAll}},
      {"truncation", {kSpecial, kAll}},

      {"functions", {kRefused, kChat}},
      {"audio", {kRefused, kChat}},
      {"web_search_options", {kRefused, kChat}},
      {"suffix", {kRefused, kText}},
      {"prompt_embeds", {kRefused, kBoth}},
      {"use_beam_search", {kRefused, kBoth}},
      {"include_stop_str_in_output", {kRefused, kBoth}},
      {"truncate_prompt_tokens", {kRefused, kAll}},
      {"prompt_logprobs", {kRefused, kBoth}},
      {"allowed_token_ids", {kRefused, kBoth}},
      {"bad_words", {kRefused, kBoth}},
      {"chat_template", {kRefused, kChat}},
      {"mm_processor_kwargs", {kRefused, kAll}},
      {"structured_outputs", {kRefused, kBoth}},
      {"structural_tag", {kRefused, kBoth}},
      {"guided_json", {kRefused, kBoth}},
      {"guided_regex", {kRefused, kBoth}},
      {"guided_choice", {kRefused, kBoth}},
      {"guided_grammar", {kRefused, kBoth}},
      {"guided_json_object", {kRefused, kBoth}},
      {"guided_decoding_backend", {kRefused, kBoth}},
      {"guided_whitespace_pattern", {kRefused, kBoth}},
      {"logits_processors", {kRefused, kBoth}},
      {"return_tokens_as_token_ids", {kRefused, kBoth}},
      {"cache_salt", {kRefused, kBoth}},
      {"kv_transfer_params", {kRefused, kBoth}},
      {"vllm_xargs", {kRefused, kBoth}},
      {"thinking_token_budget", {kRefused, kChat}},
      {"lora_request", {kRefused, kAll}},
      {"lora_path", {kRefused, kAll}},
      {"lora", {kRefused, kAll}},
      {"skip_special_tokens", {kTrueOnly, kBoth}},
      {"spaces_between_special_tokens", {kTrueOnly, kBoth}},
      {"include_reasoning", {kTrueOnly, kChat}},
      {"normalize", {kTrueOnly, kEmbed}},
      {"length_penalty", {kOneOnly, kBoth}},
  };
  return table;
}

bool asks_for_nothing(const Json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value.is_null() || (value.is_structured() && value.empty());
}

void check_response_format(const Json& value, FieldReader* body) {
  const bool object = value.is_object();
  const auto type = object ? value.find("type") : value.end();
  if (!object || type == value.end() || !type->is_string()) {
    body->fail_value("response_format", "an object with a \"type\" that is a string", value);
  } else if (is_text(*type, "text")) {
    return;
  } else if (is_text(*type, "json_object") || is_text(*type, "json_schema") ||
             is_text(*type, "grammar") || is_text(*type, "structural_tag")) {
    body->fail_unsupported("response_format.type", *type);
  } else {
    body->fail_value("response_format.type", "\"text\"", *type);
  }
}

// `tool_choice` and its predecessor `function_call`.
void check_tool_choice(std::string_view name, const Json& value, FieldReader* body) {
  if (is_text(value, "none") || is_text(value, "auto")) return;
  if (is_text(value, "required") || value.is_object()) {
    body->fail_unsupported(name, value);
  } else {
    body->fail_value(name, "\"none\" or \"auto\"", value);
  }
}

void check_modalities(const Json& value, FieldReader* body) {
  if (!value.is_array()) return body->fail_value("modalities", "an array of strings", value);
  for (const Json& item : value) {
    if (!item.is_string()) return body->fail_value("modalities", "an array of strings", item);
    if (!is_text(item, "text")) return body->fail_unsupported("modalities", item);
  }
}

void check_best_of(const Json& value, FieldReader* body) {
  const std::optional<std::int64_t> best_of = as_integer(value);
  const Json* const n = body->find("n");
  const std::int64_t choices = n == nullptr ? 1 : as_integer(*n).value_or(1);
  if (!best_of || *best_of < 1 || *best_of < choices) {
    body->fail_value("best_of", "an integer of at least body.n", value);
  } else if (*best_of > choices) {
    body->fail_unsupported("best_of", value);
  }
}

void check_special(Endpoint endpoint, std::string_view name, const Json& value, FieldReader* body) {
  if (name == "stream") {
    if (body->boolean(name, false)) body->fail_unsupported(name, value);
  } else if (name == "response_format") {
    check_response_format(value, body);
  } else if (name == "tool_choice" || name == "function_call") {
    check_tool_choice(name, value, body);
  } else if (name == "modalities") {
    check_modalities(value, body);
  } else if (name == "verbosity") {
    if (!value.is_string()) {
      body->fail_value(name, "a string", value);
    } else if (!is_text(value, "medium")) {
      body->fail_unsupported(name, value);
    }
  } else if (name == "best_of") {
    check_best_of(value, body);
  } else if (name == "truncation") {
    if (is_text(value, "disabled")) return;
    if (!is_text(value, "auto")) return body->fail_value(name, "\"auto\" or \"disabled\"", value);
    // Only a conversation has turns that can be left out.
    if (endpoint != Endpoint::kChatCompletions) body->fail_unsupported(name, value);
  } else {  // add_special_tokens: the template writes a chat's, the tokenizer adds a prompt's
    const bool usual = endpoint != Endpoint::kChatCompletions;
    if (body->boolean(name, usual) != usual) body->fail_unsupported(name, value);
  }
}

void check_field(Endpoint endpoint, std::string_view name, FieldRule rule, const Json& value,
                 FieldReader* body) {
  switch (rule) {
    case FieldRule::kHonoured:
    case FieldRule::kHarmless:
      break;
    case FieldRule::kRefused:
      if (!asks_for_nothing(value)) body->fail_unsupported(name, value);
      break;
    case FieldRule::kTrueOnly:
      if (!body->boolean(name, true)) body->fail_unsupported(name, value);
      break;
    case FieldRule::kOneOnly:
      if (!value.is_number()) {
        body->fail_value(name, "a number", value);
      } else if (value.get<double>() != 1.0) {
        body->fail_unsupported(name, value);
      }
      break;
    case FieldRule::kSpecial:
      check_special(endpoint, name, value, body);
      break;
  }
}

}  // namespace

void add_ignored_field(std::string name, std::vector<std::string>* ignored) {
  constexpr std::size_t kMaxNameBytes = 80;
  if (ignored->size() >= kMaxIgnoredFields) return;
  ignored->emplace_back(utf8_prefix(name, kMaxNameBytes));
}

void check_field_names(Endpoint endpoint, FieldReader* body, std::vector<std::string>* ignored) {
  const std::uint8_t here = endpoint == Endpoint::kChatCompletions ? kChat
                            : endpoint == Endpoint::kCompletions   ? kText
                                                                   : kEmbed;
  for (const auto& [name, value] : body->object().get_ref<const Json::object_t&>()) {
    if (body->failed()) return;
    const auto entry = field_table().find(name);
    if (entry == field_table().end()) {
      add_ignored_field(body->path(name), ignored);
    } else if ((entry->second.endpoints & here) == 0) {
      // A known field of another endpoint: what it asks for does not happen here.
      if (asks_for_nothing(value)) continue;
      if (name == "echo" || name == "top_logprobs" || name == "tools") {
        body->fail_unsupported(name, value);
      } else {
        add_ignored_field(body->path(name), ignored);
      }
    } else if (!value.is_null()) {
      check_field(endpoint, name, entry->second.rule, value, body);
    }
  }
}

}  // namespace batchmill
