#include "actors/line_work.h"

#include <stdexcept>

namespace batchmill {
namespace {

Json params_to_json(const SamplingParams& params) {
  Json json;
  json["temperature"] = params.temperature;
  json["top_p"] = params.top_p;
  json["top_k"] = params.top_k;
  json["min_p"] = params.min_p;
  json["presence_penalty"] = params.presence_penalty;
  json["frequency_penalty"] = params.frequency_penalty;
  json["repetition_penalty"] = params.repetition_penalty;
  json["logit_bias"] = params.logit_bias;
  json["seed"] = params.seed;
  json["max_tokens"] = params.max_tokens;
  json["min_tokens"] = params.min_tokens;
  json["ignore_eos"] = params.ignore_eos;
  json["stop_token_ids"] = params.stop_token_ids;
  json["stop"] = params.stop;
  if (params.logprobs) json["logprobs"] = *params.logprobs;
  json["prompt_logprobs"] = params.prompt_logprobs;
  return json;
}

SamplingParams params_from_json(const Json& json) {
  SamplingParams params;
  json.at("temperature").get_to(params.temperature);
  json.at("top_p").get_to(params.top_p);
  json.at("top_k").get_to(params.top_k);
  json.at("min_p").get_to(params.min_p);
  json.at("presence_penalty").get_to(params.presence_penalty);
  json.at("frequency_penalty").get_to(params.frequency_penalty);
  json.at("repetition_penalty").get_to(params.repetition_penalty);
  json.at("logit_bias").get_to(params.logit_bias);
  json.at("seed").get_to(params.seed);
  json.at("max_tokens").get_to(params.max_tokens);
  json.at("min_tokens").get_to(params.min_tokens);
  json.at("ignore_eos").get_to(params.ignore_eos);
  json.at("stop_token_ids").get_to(params.stop_token_ids);
  json.at("stop").get_to(params.stop);
  if (json.contains("logprobs")) params.logprobs = json.at("logprobs").get<std::int32_t>();
  json.at("prompt_logprobs").get_to(params.prompt_logprobs);
  return params;
}

// Values are read by recursion: bytes that nest deeper than any work does are refused before.
class NestingCheck {
 public:
  using Binary = Json::binary_t;

  bool null() { return true; }
  bool boolean(bool) { return true; }
  bool number_integer(std::int64_t) { return true; }
  bool number_unsigned(std::uint64_t) { return true; }
  bool number_float(double, const std::string&) { return true; }
  bool string(std::string&) { return true; }
  bool binary(Binary&) { return true; }
  bool key(std::string&) { return true; }
  bool start_object(std::size_t) { return ++depth_ <= kMaxDepth; }
  bool start_array(std::size_t) { return ++depth_ <= kMaxDepth; }
  bool end_object() { return --depth_ >= 0; }
  bool end_array() { return --depth_ >= 0; }
  bool parse_error(std::size_t, const std::string&, const Json::exception&) { return false; }

 private:
  static constexpr int kMaxDepth = 8;
  int depth_ = 0;
};

Endpoint endpoint_from_json(const Json& json) {
  const auto number = json.get<std::int64_t>();
  if (number < 1 || number > 3) throw std::runtime_error("a plan entry's endpoint is unknown");
  return static_cast<Endpoint>(number);
}

}  // namespace

std::string encode_line_work(const LineWork& work) {
  Json json;
  json["custom_id"] = work.custom_id;
  json["endpoint"] = static_cast<int>(work.endpoint);
  json["model"] = work.requested_model;
  json["n"] = work.num_choices;
  json["echo"] = work.echo;
  json["echo_texts"] = work.echo_texts;
  json["token_ids"] = work.return_token_ids;
  if (work.base64) json["base64"] = true;
  if (work.truncation) {
    json["truncation"] = {work.truncation->dropped_turns, work.truncation->dropped_messages};
  }
  json["queued_us"] = work.queued_us;
  json["params"] = params_to_json(work.params);
  std::string bytes;
  Json::to_msgpack(json, bytes);
  return bytes;
}

LineWork decode_line_work(std::string_view bytes) {
  NestingCheck check;
  if (!Json::sax_parse(bytes.begin(), bytes.end(), &check, Json::input_format_t::msgpack)) {
    throw std::runtime_error("a plan entry's request cannot be read");
  }
  try {
    const Json json = Json::from_msgpack(bytes.begin(), bytes.end());
    LineWork work;
    json.at("custom_id").get_to(work.custom_id);
    work.endpoint = endpoint_from_json(json.at("endpoint"));
    json.at("model").get_to(work.requested_model);
    json.at("n").get_to(work.num_choices);
    json.at("echo").get_to(work.echo);
    json.at("echo_texts").get_to(work.echo_texts);
    json.at("token_ids").get_to(work.return_token_ids);
    if (json.contains("base64")) json.at("base64").get_to(work.base64);
    if (json.contains("truncation")) {
      const Json& dropped = json.at("truncation");
      work.truncation = Truncation{dropped.at(0), dropped.at(1)};
    }
    json.at("queued_us").get_to(work.queued_us);
    work.params = params_from_json(json.at("params"));
    return work;
  } catch (const Json::exception& error) {
    throw std::runtime_error(std::string("a plan entry's request cannot be read: ") + error.what());
  }
}

}  // namespace batchmill
