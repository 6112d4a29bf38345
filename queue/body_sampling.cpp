// How a request's tokens are chosen and when its choices end.
#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <string>

#include "queue/body_fields.h"

namespace batchmill {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// OpenAI takes a top_p of 0; a nucleus of next to nothing holds the likeliest token alone.
constexpr double kSmallestTopP = 1e-9;

void read_lengths(Endpoint endpoint, FieldReader* body, BatchBody* out) {
  const bool echo = endpoint == Endpoint::kCompletions && body->boolean("echo", false);
  out->echo = echo;
  const std::int64_t least = echo ? 0 : 1;
  const auto old_name = body->integer("max_tokens", least);
  const auto new_name = body->integer("max_completion_tokens", least);
  out->max_tokens = new_name ? new_name : old_name;
  out->min_tokens = body->integer("min_tokens", 0).value_or(0);
  if (out->max_tokens && out->min_tokens > *out->max_tokens) {
    body->fail("invalid_value",
               fmt::format("body.min_tokens must be at most max_tokens ({}), is {}",
                           *out->max_tokens, out->min_tokens));
  }
  out->ignore_eos = body->boolean("ignore_eos", false);
}

void read_seed(FieldReader* body, BatchBody* out) {
  const Json* const value = body->find("seed");
  if (value == nullptr) return;
  if (value->is_number_unsigned()) {
    out->seed = value->get<std::uint64_t>();
  } else if (const auto seed = as_integer(*value)) {
    out->seed = static_cast<std::uint64_t>(*seed);
  } else if (value->is_number_float() && value->get<double>() > 0.0 &&
             value->get<double>() < 18446744073709551616.0 &&
             std::trunc(value->get<double>()) == value->get<double>()) {
    out->seed = static_cast<std::uint64_t>(value->get<double>());
  } else {
    body->fail_value("seed", "an integer of 64 bits", *value);
  }
}

void read_stops(FieldReader* body, BatchBody* out) {
  constexpr std::string_view kWanted = "a string or an array of strings, none of them empty";
  if (const Json* const stop = body->find("stop")) {
    const auto add = [&](const Json& value) {
      if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
        body->fail_value("stop", kWanted, value);
      } else {
        out->stop.push_back(value.get<std::string>());
      }
    };
    if (stop->is_array()) {
      for (const Json& value : *stop) add(value);
    } else {
      add(*stop);
    }
  }
  if (const Json* const ids = body->find("stop_token_ids")) {
    if (!ids->is_array()) return body->fail_value("stop_token_ids", "an array of integers", *ids);
    for (const Json& value : *ids) {
      const auto id = as_integer(value);
      if (!id || *id < 0 || *id > kMaxTokenId) {
        return body->fail_value("stop_token_ids", "an array of token ids", value);
      }
      out->stop_token_ids.push_back(*id);
    }
  }
}

void read_logit_bias(FieldReader* body, BatchBody* out) {
  const Json* const bias = body->find("logit_bias");
  if (bias == nullptr) return;
  if (!bias->is_object()) {
    return body->fail_value("logit_bias", "an object of token id to number", *bias);
  }
  FieldReader values(*bias, "body.logit_bias.", body->error());
  for (const auto& [key, value] : bias->get_ref<const Json::object_t&>()) {
    std::int64_t id = -1;
    const char* const end = key.data() + key.size();
    const auto parsed = std::from_chars(key.data(), end, id);
    if (parsed.ec != std::errc() || parsed.ptr != end || id < 0 || id > kMaxTokenId) {
      return body->fail_value("logit_bias", "an object whose keys are token ids", Json(key));
    }
    if (!value.is_number() || !(std::abs(value.get<double>()) <= 100.0)) {
      return values.fail_value(key, "a number in [-100, 100]", value);
    }
    out->logit_bias.emplace_back(id, value.get<double>());
  }
}

void read_logprobs(Endpoint endpoint, const BatchLineLimits& limits, FieldReader* body,
                   BatchBody* out) {
  if (endpoint == Endpoint::kCompletions) {
    if (const auto count = body->integer("logprobs", 0, limits.max_top_logprobs)) {
      out->logprobs = static_cast<std::int32_t>(*count);
    }
    return;
  }
  const bool wanted = body->boolean("logprobs", false);
  const auto top = body->integer("top_logprobs", 0, limits.max_top_logprobs);
  if (wanted) {
    out->logprobs = static_cast<std::int32_t>(top.value_or(0));
  } else if (top.value_or(0) > 0) {
    body->fail("invalid_value", "body.top_logprobs needs body.logprobs to be true");
  }
}

void read_choices(const BatchLineLimits& limits, FieldReader* body, BatchBody* out) {
  out->n = static_cast<std::int32_t>(body->integer("n", 1, limits.max_choices).value_or(1));
  const std::size_t prompts = std::max<std::size_t>(out->prompts.size(), 1);
  if (prompts * static_cast<std::size_t>(out->n) > static_cast<std::size_t>(limits.max_choices)) {
    body->fail("invalid_value",
               fmt::format("body.prompt × body.n must be at most {} choices, is {} × {}",
                           limits.max_choices, prompts, out->n));
  }
}

}  // namespace

void read_sampling(Endpoint endpoint, const BatchLineLimits& limits, FieldReader* body,
                   BatchBody* out) {
  read_lengths(endpoint, body, out);
  out->temperature = body->number("temperature", 0.0, 2.0);
  out->top_p = body->number("top_p", 0.0, 1.0);
  if (out->top_p) out->top_p = std::max(*out->top_p, kSmallestTopP);
  out->top_k = body->integer("top_k", -1);
  if (out->top_k == -1) out->top_k = 0;
  out->min_p = body->number("min_p", 0.0, 1.0);
  read_seed(body, out);
  read_stops(body, out);
  out->presence_penalty = body->number("presence_penalty", -2.0, 2.0).value_or(0.0);
  out->frequency_penalty = body->number("frequency_penalty", -2.0, 2.0).value_or(0.0);
  out->repetition_penalty = body->number("repetition_penalty", 0.0, kInfinity, true);
  read_logit_bias(body, out);
  read_logprobs(endpoint, limits, body, out);
  read_choices(limits, body, out);
  out->return_token_ids = body->boolean("return_token_ids", false);
}

}  // namespace batchmill
