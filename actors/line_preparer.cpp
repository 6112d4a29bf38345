#include "actors/line_preparer.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "actors/line_work.h"
#include "actors/output_line.h"
#include "actors/prompt_builder.h"
#include "actors/truncation.h"
#include "queue/field_reader.h"

namespace batchmill {
namespace {

constexpr std::int32_t kDefaultCompletionTokens = 16;  // OpenAI's for /v1/completions

[[noreturn]] void refuse(const char* code, std::string message) {
  throw LineRefused({code, std::move(message)});
}

TokenId checked_token(const ModelCatalog::Entry& model, std::int64_t id, const char* field) {
  const std::int32_t vocab_size = model.served.model->config().vocab_size;
  if (id < 0 || id >= vocab_size) {
    refuse("invalid_value", fmt::format("{}: token id {} is outside the vocabulary (0 … {})", field,
                                        id, vocab_size - 1));
  }
  return static_cast<TokenId>(id);
}

// A line without a seed of its own draws from (job, line): splitmix64 over the key.
std::uint64_t line_seed(const LineKey& key) {
  std::uint64_t hash = key.line;
  for (const std::uint8_t byte : key.job.bytes) {
    hash = (hash ^ byte) + 0x9E3779B97F4A7C15u;
    hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9u;
    hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EBu;
    hash ^= hash >> 31;
  }
  return hash;
}

// The line's max_tokens, lowered to what the context leaves behind the longest prompt.
std::int32_t resolve_max_tokens(const BatchLine& line, const ModelCatalog::Entry& model,
                                std::size_t longest_prompt, const LineWork& work,
                                std::int32_t default_max_tokens) {
  const auto prompt = static_cast<std::int64_t>(longest_prompt);
  const std::string without = work.truncation ? fmt::format(" (with its {} oldest turns dropped)",
                                                            work.truncation->dropped_turns)
                                              : "";
  if (prompt + 1 > model.context_tokens) {
    refuse(
        "context_length_exceeded",
        fmt::format("the prompt has {} tokens{} and the model's context is {} tokens: no room is "
                    "left for one generated token",
                    prompt, without, model.context_tokens));
  }
  if (prompt + 1 > model.pool_tokens) {
    refuse(
        "out_of_memory",
        fmt::format("the prompt has {} tokens{} and the device's KV cache holds {} tokens: it can "
                    "never fit",
                    prompt, without, model.pool_tokens));
  }
  const std::int64_t room = std::min(model.context_tokens, model.pool_tokens) - prompt;
  const std::int64_t fallback =
      line.endpoint == Endpoint::kChatCompletions ? default_max_tokens : kDefaultCompletionTokens;
  return static_cast<std::int32_t>(std::min(line.body.max_tokens.value_or(fallback), room));
}

// The prompt of a chat line; `work` is told what it left out.
Prompts chat_prompts(const BatchLine& line, const ModelCatalog::Entry& model,
                     std::int64_t created_at_s, std::int32_t default_max_tokens, LineWork* work) {
  if (!line.body.drop_oldest_turns) {
    return chat_prompt(line.body, *model.served.model, created_at_s);
  }
  BatchBody body = line.body;
  const auto build = [&](const Json& messages) {
    body.messages = messages;
    return chat_prompt(body, *model.served.model, created_at_s);
  };
  TruncatedPrompt truncated =
      drop_oldest_turns(line.body.messages,
                        untruncated_prompt_tokens(std::min(model.context_tokens, model.pool_tokens),
                                                  body.max_tokens.value_or(default_max_tokens)),
                        build);
  work->truncation = Truncation{truncated.dropped_turns, truncated.dropped_messages};
  return std::move(truncated.prompts);
}

SamplingParams sampling_params(const BatchLine& line, const ModelCatalog::Entry& model,
                               const LineKey& key) {
  const BatchBody& body = line.body;
  const GenerationDefaults& defaults = model.served.model->generation_defaults();
  const auto pick = [](const std::optional<double>& given, const std::optional<float>& shipped,
                       float otherwise) {
    return given ? static_cast<float>(*given) : shipped.value_or(otherwise);
  };
  SamplingParams params;
  params.temperature = pick(body.temperature, defaults.temperature, 1.0f);
  params.top_p = pick(body.top_p, defaults.top_p, 1.0f);
  params.min_p = pick(body.min_p, defaults.min_p, 0.0f);
  params.repetition_penalty = pick(body.repetition_penalty, defaults.repetition_penalty, 1.0f);
  // −1 is vLLM's spelling of "off"; a number beyond the vocabulary changes nothing.
  const std::int64_t top_k = body.top_k.value_or(defaults.top_k.value_or(0));
  params.top_k = static_cast<std::int32_t>(std::clamp<std::int64_t>(top_k, 0, INT32_MAX));
  params.presence_penalty = static_cast<float>(body.presence_penalty);
  params.frequency_penalty = static_cast<float>(body.frequency_penalty);
  for (const auto& [token, bias] : body.logit_bias) {
    params.logit_bias.emplace_back(checked_token(model, token, "body.logit_bias"),
                                   static_cast<float>(bias));
  }
  for (const std::int64_t token : body.stop_token_ids) {
    params.stop_token_ids.push_back(checked_token(model, token, "body.stop_token_ids"));
  }
  params.seed = body.seed.value_or(line_seed(key));
  params.ignore_eos = body.ignore_eos;
  params.stop = body.stop;
  params.logprobs = body.logprobs;
  params.prompt_logprobs = body.echo && body.logprobs.has_value();
  return params;
}

// Before min_tokens no token that ends the answer may come; one other must exist.
void check_a_token_may_come(const SamplingParams& params, const Model& model) {
  if (params.min_tokens == 0) return;
  std::vector<TokenId> ends = params.stop_token_ids;
  ends.insert(ends.end(), model.eos_token_ids().begin(), model.eos_token_ids().end());
  std::ranges::sort(ends);
  const auto last = std::ranges::unique(ends).begin();
  if (last - ends.begin() >= model.config().vocab_size) {
    refuse("invalid_value",
           "body.stop_token_ids: with min_tokens, one token of the vocabulary must be left");
  }
}

LineWork line_work(const BatchLine& line, std::int64_t queued_us) {
  LineWork work;
  work.custom_id = line.custom_id;
  work.endpoint = line.endpoint;
  work.requested_model = line.body.model;
  work.num_choices = line.body.n;
  work.return_token_ids = line.body.return_token_ids;
  work.queued_us = queued_us;
  return work;
}

PlanEntry plan_entry(const LineWork& work, Prompts prompts, const ModelCatalog::Entry& model,
                     const LineKey& key, const PreparingJob& job) {
  PlanEntry entry;
  entry.key = key;
  entry.model = model.served.name;
  entry.fingerprint = model.served.model->fingerprint();
  entry.priority = job.priority;
  entry.num_choices = static_cast<std::uint32_t>(prompts.token_ids.size()) *
                      static_cast<std::uint32_t>(work.num_choices);
  entry.max_tokens = static_cast<std::uint32_t>(work.params.max_tokens);
  entry.prompts = std::move(prompts.token_ids);
  entry.request = encode_line_work(work);
  return entry;
}

PlanEntry embedding_entry(const BatchLine& line, const ModelCatalog::Entry& model,
                          const LineKey& key, const PreparingJob& job, std::int64_t queued_us) {
  const std::int32_t size = model.embedding_size;
  if (line.body.dimensions && *line.body.dimensions != size) {
    refuse("unsupported_parameter",
           fmt::format("body.dimensions: {} is not supported, the model's vectors have {}",
                       *line.body.dimensions, size));
  }
  Prompts inputs = embedding_inputs(line.body, *model.served.model);
  for (std::size_t i = 0; i < inputs.token_ids.size(); ++i) {
    const auto length = static_cast<std::int64_t>(inputs.token_ids[i].size());
    if (length <= model.context_tokens) continue;
    refuse("context_length_exceeded",
           fmt::format("body.input: input {} has {} tokens and the model's context is {} tokens", i,
                       length, model.context_tokens));
  }
  LineWork work = line_work(line, queued_us);
  work.params.max_tokens = 0;
  work.base64 = line.body.base64;
  PlanEntry entry = plan_entry(work, std::move(inputs), model, key, job);
  entry.shares_prefixes = false;
  return entry;
}

PlanEntry generation_entry(const BatchLine& line, const ModelCatalog::Entry& model,
                           const LineKey& key, const PreparingJob& job,
                           std::int32_t default_max_tokens, std::int64_t queued_us) {
  LineWork work = line_work(line, queued_us);
  Prompts prompts = line.endpoint == Endpoint::kChatCompletions
                        ? chat_prompts(line, model, job.created_at_s, default_max_tokens, &work)
                        : completion_prompts(line.body, *model.served.model);
  work.params = sampling_params(line, model, key);
  std::size_t longest = 0;
  for (const auto& ids : prompts.token_ids) longest = std::max(longest, ids.size());
  work.params.max_tokens = resolve_max_tokens(line, model, longest, work, default_max_tokens);
  work.params.min_tokens = static_cast<std::int32_t>(
      std::min<std::int64_t>(line.body.min_tokens, work.params.max_tokens));
  check_a_token_may_come(work.params, *model.served.model);
  work.echo = line.body.echo;
  if (work.echo) work.echo_texts = std::move(prompts.texts);
  return plan_entry(work, std::move(prompts), model, key, job);
}

}  // namespace

LinePreparer::LinePreparer(const ModelCatalog* catalog, std::int32_t default_max_tokens,
                           std::int32_t max_choices, std::uint64_t max_line_bytes)
    : catalog_(catalog),
      default_max_tokens_(default_max_tokens),
      limits_{.max_choices = max_choices},
      max_line_bytes_(max_line_bytes) {}

LineResult LinePreparer::failure(const LineKey& key, const std::optional<std::string>& custom_id,
                                 const std::string& code, const std::string& message,
                                 std::int64_t queued_us, std::int64_t now_us) {
  LineResult result;
  result.key = key;
  result.outcome = LineOutcome::kFailed;
  result.custom_id = custom_id.value_or("");
  result.has_custom_id = custom_id.has_value();
  result.error_code = code;
  result.output = failure_output(key, custom_id, code, message);
  result.times.queued_us = queued_us;
  result.times.finished_us = now_us;
  return result;
}

PreparedLine LinePreparer::prepare(const PreparingJob& job, const StoredLine& line,
                                   std::int64_t now_us) const {
  const LineKey key{job.id, line.line};
  PreparedLine prepared;
  const auto fail = [&](const std::string& code, const std::string& message) {
    prepared.failure = failure(key, prepared.custom_id, code, message, line.queued_us, now_us);
    return std::move(prepared);
  };
  if (line.too_long) {
    return fail(
        "line_too_long",
        fmt::format("the line is longer than {} bytes (queue.max_line_bytes)", max_line_bytes_));
  }
  if (line.is_blank()) return prepared;

  ParsedLine parsed = parse_batch_line(line.bytes, limits_);
  prepared.custom_id = parsed.custom_id;
  if (parsed.error) return fail(parsed.error->code, parsed.error->message);
  prepared.ignored_fields = parsed.line->ignored_fields;

  const BatchLine& request = *parsed.line;
  const ModelCatalog::Entry* model = catalog_->find(request.body.model);
  if (model == nullptr) {
    return fail("model_not_found", fmt::format("body.model: no model is called {}",
                                               describe_value(request.body.model)));
  }
  const bool embeds = model->embedding_size > 0;
  if (embeds != (request.endpoint == Endpoint::kEmbeddings)) {
    return fail("unsupported_url",
                embeds ? fmt::format("url: '{}' makes embeddings: only /v1/embeddings takes it",
                                     model->served.name)
                       : fmt::format("url: /v1/embeddings needs an embedding model, and '{}' "
                                     "generates text",
                                     model->served.name));
  }
  try {
    prepared.entry =
        embeds ? embedding_entry(request, *model, key, job, line.queued_us)
               : generation_entry(request, *model, key, job, default_max_tokens_, line.queued_us);
  } catch (const LineRefused& refused) {
    return fail(refused.error().code, refused.error().message);
  } catch (const std::exception& error) {
    // Whatever one line meets must not stop the others.
    return fail("internal_error", fmt::format("the line could not be prepared: {}", error.what()));
  }
  return prepared;
}

}  // namespace batchmill
