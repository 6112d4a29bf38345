#include "actors/output_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "actors/embedding_body.h"
#include "engine/unicode.h"
#include "queue/json_reader.h"

namespace batchmill {
namespace {

// A message may quote a line, and a line may be long.
constexpr std::size_t kMaxMessageBytes = 1000;

// JSON knows no infinities: OpenAI's stand-in.
constexpr double kMinusInfinity = -9999.0;

std::string line_hex(const LineKey& key) {
  std::string hex;
  for (const std::uint8_t byte : key.job.bytes) hex += fmt::format("{:02x}", byte);
  return hex + fmt::format("{:08x}", key.line);
}

double finite_logprob(float logprob) {
  return std::isfinite(logprob) ? static_cast<double>(logprob) : kMinusInfinity;
}

std::string token_text(const Tokenizer* tokenizer, TokenId id) {
  return tokenizer == nullptr ? std::string()
                              : replace_invalid_utf8(tokenizer->token_bytes(id, true));
}

Json token_bytes(const Tokenizer* tokenizer, TokenId id) {
  Json bytes = Json::array();
  if (tokenizer != nullptr) {
    for (const char byte : tokenizer->token_bytes(id, true)) {
      bytes.push_back(static_cast<unsigned char>(byte));
    }
  }
  return bytes;
}

Json chat_token(const Tokenizer* tokenizer, const TokenLogprob& token) {
  return {{"token", token_text(tokenizer, token.token)},
          {"logprob", finite_logprob(token.logprob)},
          {"bytes", token_bytes(tokenizer, token.token)}};
}

Json chat_logprobs(const Tokenizer* tokenizer, const std::vector<PositionLogprobs>& positions) {
  Json content = Json::array();
  for (const PositionLogprobs& position : positions) {
    Json entry = chat_token(tokenizer, position.chosen);
    entry["top_logprobs"] = Json::array();
    for (const TokenLogprob& top : position.top) {
      entry["top_logprobs"].push_back(chat_token(tokenizer, top));
    }
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

// The completions endpoint's parallel arrays. `text_offset` counts characters (code points) from
// where the choice's text begins.
class CompletionLogprobs {
 public:
  explicit CompletionLogprobs(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  void add_unscored(TokenId token) {
    add_token(token);
    token_logprobs_.push_back(nullptr);
    top_.push_back(nullptr);
  }

  void add(const PositionLogprobs& position) {
    add_token(position.chosen.token);
    token_logprobs_.push_back(finite_logprob(position.chosen.logprob));
    Json top = Json::object();
    const auto add_candidate = [&](const TokenLogprob& candidate) {
      // Two candidates may have the same text; the better one came first and keeps the key.
      const std::string text = token_text(tokenizer_, candidate.token);
      if (!top.contains(text)) top[text] = finite_logprob(candidate.logprob);
    };
    std::ranges::for_each(position.top, add_candidate);
    add_candidate(position.chosen);  // always there, so one more than asked for, as with OpenAI
    top_.push_back(std::move(top));
  }

  Json json() && {
    return {{"tokens", std::move(tokens_)},
            {"token_logprobs", std::move(token_logprobs_)},
            {"top_logprobs", std::move(top_)},
            {"text_offset", std::move(offsets_)}};
  }

 private:
  void add_token(TokenId token) {
    const std::string text = token_text(tokenizer_, token);
    tokens_.push_back(text);
    offsets_.push_back(offset_);
    offset_ += std::count_if(text.begin(), text.end(),
                             [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
  }

  const Tokenizer* tokenizer_;
  Json tokens_ = Json::array();
  Json token_logprobs_ = Json::array();
  Json top_ = Json::array();
  Json offsets_ = Json::array();
  std::int64_t offset_ = 0;
};

Json chat_choice(const Success& success, const Choice& choice) {
  Json logprobs = nullptr;
  if (success.work->params.logprobs) logprobs = chat_logprobs(success.tokenizer, choice.logprobs);
  return {{"message", {{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}}},
          {"logprobs", std::move(logprobs)},
          {"finish_reason", to_string(choice.finish_reason)}};
}

Json completion_choice(const Success& success, std::size_t prompt_index, const Choice& choice) {
  const LineWork& work = *success.work;
  const RequestOutput& output = (*success.outputs)[prompt_index];
  Json logprobs = nullptr;
  if (work.params.logprobs) {
    CompletionLogprobs columns(success.tokenizer);
    if (work.echo) {
      columns.add_unscored((*success.prompts)[prompt_index].front());
      for (const PositionLogprobs& position : output.prompt_logprobs) columns.add(position);
    }
    for (const PositionLogprobs& position : choice.logprobs) columns.add(position);
    logprobs = std::move(columns).json();
  }
  const std::string text =
      (work.echo ? work.echo_texts[prompt_index] : std::string()) + choice.text;
  return {{"text", text},
          {"logprobs", std::move(logprobs)},
          {"finish_reason", to_string(choice.finish_reason)}};
}

Json envelope(const LineKey& key, const Json& custom_id) {
  return {{"id", batch_request_id(key)}, {"custom_id", custom_id}};
}

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json generation_body(const Success& success) {
  const LineWork& work = *success.work;
  const bool chat = work.endpoint == Endpoint::kChatCompletions;

  Json choices = Json::array();
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t completion_tokens = 0;
  for (std::size_t p = 0; p < success.outputs->size(); ++p) {
    const RequestOutput& output = (*success.outputs)[p];
    prompt_tokens += output.num_prompt_tokens;
    cached_tokens += output.num_cached_tokens;
    completion_tokens += output.num_completion_tokens;
    for (const Choice& choice : output.choices) {
      Json entry = {{"index", choices.size()}};
      entry.update(chat ? chat_choice(success, choice) : completion_choice(success, p, choice));
      if (work.return_token_ids) entry["token_ids"] = choice.token_ids;
      choices.push_back(std::move(entry));
    }
  }

  Json body = {{"id", (chat ? "chatcmpl-" : "cmpl-") + line_hex(success.key)},
               {"object", chat ? "chat.completion" : "text_completion"},
               {"created", success.created_s},
               {"model", work.requested_model},
               {"choices", std::move(choices)},
               {"usage",
                {{"prompt_tokens", prompt_tokens},
                 {"completion_tokens", completion_tokens},
                 {"total_tokens", prompt_tokens + completion_tokens},
                 {"prompt_tokens_details", {{"cached_tokens", cached_tokens}}}}},
               {"system_fingerprint", "fp_" + success.fingerprint}};
  if (work.return_token_ids) {
    const auto& prompts = *success.prompts;
    body["prompt_token_ids"] = prompts.size() == 1 ? Json(prompts.front()) : Json(prompts);
  }

  if (work.truncation) {
    body["truncation"] = {{"dropped_turns", work.truncation->dropped_turns},
                          {"dropped_messages", work.truncation->dropped_messages}};
  }
  return body;
}

}  // namespace

std::string batch_request_id(const LineKey& key) { return "batch_req_" + line_hex(key); }

std::string success_output(const Success& success) {
  Json line = envelope(success.key, success.work->custom_id);
  line["response"] = {
      {"status_code", 200},
      {"request_id", "req_" + line_hex(success.key)},
      {"body", success.work->endpoint == Endpoint::kEmbeddings ? embedding_body(success)
                                                               : generation_body(success)}};
  line["error"] = nullptr;
  return dump(line);
}

std::string failure_output(const LineKey& key, const std::optional<std::string>& custom_id,
                           std::string_view code, std::string_view message) {
  Json line = envelope(key, custom_id ? Json(*custom_id) : Json(nullptr));
  line["response"] = nullptr;
  line["error"] = {
      {"code", code}, {"message", utf8_prefix(message, kMaxMessageBytes)}, {"line", key.line}};
  return dump(line);
}

}  // namespace batchmill
