#include "tools/device_rates.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>

#include "engine/embedder.h"
#include "engine/engine.h"
#include "engine/tensor.h"
#include "tools/devices.h"
#include "tools/exit_code.h"
#include "tools/job_access.h"

namespace batchmill {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kEnoughSeconds = 2.0;  // of prefill and of decode in the ledger
constexpr std::int32_t kPromptTokens = 512;
constexpr std::int32_t kPrompts = 8;
constexpr std::int32_t kSequences = 32;
constexpr std::int32_t kShortPromptTokens = 32;
constexpr std::int32_t kDecodeTokens = 16;
constexpr std::int64_t kPoolTokens = 2 * kPrompts * kPromptTokens;

// Tokens per second of the steps that hold one kind of row only.
struct StepRates {
  double prefill = 0.0;
  double decode = 0.0;
};

StepRates run_prompts(StepEngine* engine, std::int32_t vocab_size, std::int32_t count,
                      std::int32_t prompt_tokens, std::int32_t max_tokens) {
  std::mt19937 random(1);
  std::uniform_int_distribution<TokenId> any_token(0, vocab_size - 1);
  for (std::int32_t i = 0; i < count; ++i) {
    Request request;
    request.id = static_cast<RequestId>(i);
    for (std::int32_t t = 0; t < prompt_tokens; ++t) request.prompt.push_back(any_token(random));
    request.params.temperature = 0.0f;
    request.params.max_tokens = max_tokens;
    request.params.ignore_eos = true;
    engine->add(std::move(request));
  }
  double seconds[2] = {0.0, 0.0};
  double tokens[2] = {0.0, 0.0};
  while (engine->has_work()) {
    const Clock::time_point start = Clock::now();
    const StepOutput step = engine->step();
    const double step_seconds = std::chrono::duration<double>(Clock::now() - start).count();
    double prefill = 0.0;
    double decode = 0.0;
    for (const RequestWork& work : step.work) {
      prefill += work.num_prefill_tokens;
      decode += work.num_decode_tokens;
    }
    if (prefill > 0.0 && decode > 0.0) continue;
    const std::size_t kind = decode > 0.0 ? 1 : 0;
    seconds[kind] += step_seconds;
    tokens[kind] += prefill + decode;
  }
  return {seconds[0] > 0.0 ? tokens[0] / seconds[0] : 0.0,
          seconds[1] > 0.0 ? tokens[1] / seconds[1] : 0.0};
}

}  // namespace

std::optional<DeviceRates> rates_from_ledger(const Settings& settings, const std::string& model) {
  try {
    JobAccess access(settings);
    const WireMessage answer =
        access.ask({{"what", "costs"}, {"by", "model"}, {"from", 0}, {"max_bytes", 1 << 20}});
    std::string_view rows = answer.payload;
    while (!rows.empty()) {
      const std::size_t end = std::min(rows.find('\n'), rows.size());
      const Json row = Json::parse(rows.substr(0, end));
      rows.remove_prefix(std::min(end + 1, rows.size()));
      if (row.at("model") != model) continue;
      const Json& tokens = row.at("tokens");
      const Json& seconds = row.at("device_seconds");
      const double prefill_s = seconds.at("prefill");
      const double decode_s = seconds.at("decode");
      const double completion = tokens.at("completion");
      // An encoder's jobs have no answers to generate.
      if (prefill_s < kEnoughSeconds || (completion > 0.0 && decode_s < kEnoughSeconds)) {
        return std::nullopt;
      }
      const double prefilled =
          tokens.at("prompt_computed").get<double>() + tokens.at("recomputed").get<double>();
      return DeviceRates{prefilled / prefill_s, completion > 0.0 ? completion / decode_s : 0.0,
                         "earlier jobs"};
    }
  } catch (const ToolError& error) {
    // No store yet, or one that cannot be asked now: measuring answers too.
  }
  return std::nullopt;
}

DeviceRates measure_rates(const DaemonConfig& config, const ServedModel& served) {
  DaemonConfig small = config;
  std::erase_if(small.models, [&](const auto& entry) { return entry.name != served.name; });
  small.engine.kv_cache_bytes =
      kPoolTokens * served.model->config().kv_bytes_per_token(dtype_bytes(DType::kF32));
  const std::vector<Device> devices = make_devices(small, {served})(served);
  const Device& device = devices.front();
  const std::int32_t context = served.model->config().max_context_tokens;
  EngineOptions options = config.engine.options;
  options.max_context_tokens = context;
  const auto run = [&](std::int32_t count, std::int32_t prompt, std::int32_t generated) {
    std::unique_ptr<StepEngine> engine;
    if (device.encoder != nullptr) {
      engine = std::make_unique<Embedder>(options, device.encoder.get());
    } else {
      engine = std::make_unique<Engine>(options, device.runner.get(), nullptr);
    }
    return run_prompts(engine.get(), served.model->config().vocab_size, count,
                       std::min(prompt, context / 2), std::min(generated, context / 4));
  };
  run(1, kPromptTokens, 2);  // makes the primitives, touches the memory
  return {run(kPrompts, kPromptTokens, 1).prefill,
          run(kSequences, kShortPromptTokens, kDecodeTokens).decode, "a measurement now"};
}

}  // namespace batchmill
