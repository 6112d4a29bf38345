#include "tools/gpu_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "engine/model_size.h"
#include "tools/bench_report.h"
#include "tools/devices.h"
#include "tools/exit_code.h"

namespace batchmill {
namespace {

// What one step of a workload computes and reads, by formula.
struct StepWork {
  double operations = 0.0;  // of matrix products
  double bytes = 0.0;  // of weights, and of the keys and values that sequences have
};

Json case_of(const std::vector<Measured>& runs, const StepWork& step) {
  std::vector<double> rates;
  std::vector<double> step_seconds;
  for (const Measured& run : runs) {
    rates.push_back(static_cast<double>(run.tokens) / run.seconds);
    step_seconds.push_back(run.seconds / static_cast<double>(run.steps));
  }
  const auto [least, most] = std::ranges::minmax(rates);
  const double seconds = median(step_seconds);
  return {{"tokens", runs.front().tokens},
          {"tokens_per_second", median(rates)},
          {"tokens_per_second_min", least},
          {"tokens_per_second_max", most},
          {"step_seconds", seconds},
          {"operations_per_step", step.operations},
          {"bytes_per_step", step.bytes},
          {"gflops", step.operations / seconds / 1e9},
          {"gb_per_second", step.bytes / seconds / 1e9},
          {"share_of_gemm_peak", nullptr},
          {"share_of_roofline", nullptr}};
}

class GpuCases {
 public:
  GpuCases(const ModelConfig& config, std::int64_t kv_bytes_per_token)
      : size_(measure_model(config)),
        kv_bytes_per_token_(static_cast<double>(kv_bytes_per_token)) {}

  // `logits_rows`: over all steps of a run.
  Json prefill(const std::vector<Measured>& runs, int logits_rows) const {
    const Measured& run = runs.front();
    return of(runs, static_cast<double>(run.tokens), logits_rows, static_cast<double>(run.tokens));
  }
  Json decode(const std::vector<Measured>& runs) const {
    const Measured& run = runs[runs.size() / 2];
    const auto tokens = static_cast<double>(run.tokens);
    return of(runs, tokens, tokens, run.kv_tokens);
  }

 private:
  Json of(const std::vector<Measured>& runs, double tokens, double logits_rows,
          double kv_tokens) const {
    const auto steps = static_cast<double>(runs.front().steps);
    const auto matrices = static_cast<double>(size_.matrices);
    const auto output = static_cast<double>(size_.output);
    StepWork step;
    step.operations = 2.0 * (tokens * matrices + logits_rows * output) / steps;
    step.bytes = 2.0 * (matrices + output) + kv_tokens / steps * kv_bytes_per_token_;
    return case_of(runs, step);
  }

  ModelSize size_;
  double kv_bytes_per_token_;
};

}  // namespace

Json bench_gpu(const DaemonConfig& config, const ServedModel& served, const BenchFlags& flags) {
  EngineOptions engine_options = config.engine.options;
  const ModelConfig& shape = served.model->config();
  engine_options.max_context_tokens = shape.max_context_tokens;
  engine_options.max_num_seqs = std::max(engine_options.max_num_seqs, flags.decode_sequences);
  const std::int32_t block_tokens = config.engine.block_size_tokens;
  DaemonConfig one = config;
  std::erase_if(one.models, [&](const auto& entry) { return entry.name != served.name; });
  one.engine.options = engine_options;
  const DType kv_dtype = gpu_kv_dtype(one.models.front());
  const std::int64_t kv_bytes_per_token = shape.kv_bytes_per_token(dtype_bytes(kv_dtype));
  one.engine.kv_cache_bytes = std::int64_t{blocks_needed(flags, engine_options, block_tokens)} *
                              block_tokens * kv_bytes_per_token;
  Device device = std::move(make_devices(one, {served})(served).front());
  if (!device.can_be_lost) {
    throw ToolError(kExitUsage,
                    fmt::format("the model {} cannot be loaded onto a GPU", served.name));
  }
  BenchModel bench(shape, engine_options, std::move(device.runner));
  const Workloads workloads = measure(&bench, flags);
  const GpuCases cases(shape, kv_bytes_per_token);
  const std::int64_t held = workloads.decode.back().held_slots;
  const std::int64_t empty = workloads.decode.back().empty_slots;
  return {{"version", BATCHMILL_VERSION},
          {"device", device.name},
          {"model", served.name},
          {"dtype", dtype_name(DType::kBF16)},
          {"kv_dtype", dtype_name(kv_dtype)},
          {"threads", nullptr},
          {"config", config_json(flags, engine_options, block_tokens)},
          {"gemm_peak_gflops", nullptr},
          {"read_peak_gb_per_second", nullptr},
          {"prefill", cases.prefill(workloads.prefill, flags.prefill_prompts)},
          {"single_decode", cases.decode(workloads.single_decode)},
          {"decode", cases.decode(workloads.decode)},
          {"shared_decode", cases.decode(workloads.shared_decode)},
          {"kv_slots", kv_slots_json(held, empty, block_tokens)},
          {"scaling", nullptr},
          {"deterministic", config.engine.deterministic},
          {"deterministic_cost_percent", nullptr},
          {"gemm_implementations", Json::array()}};
}

std::string gpu_bench_text(const Json& report) {
  std::string text =
      fmt::format("{} on {}, {} (KV {})\n\n", report.at("model").get<std::string>(),
                  report.at("device").get<std::string>(), report.at("dtype").get<std::string>(),
                  report.at("kv_dtype").get<std::string>());
  const auto add = [&](const std::string& name, const char* key, bool is_decode) {
    const Json& numbers = report.at(key);
    const auto number = [&](const char* what) { return numbers.at(what).get<double>(); };
    text += fmt::format("{:<28} {:>9.0f} tokens/s, {:.3f} ms a step, ", name,
                        number("tokens_per_second"), 1e3 * number("step_seconds"));
    text += is_decode
                ? fmt::format("{:.1f} GB/s of weights, keys and values\n", number("gb_per_second"))
                : fmt::format("{:.0f} GOP/s of products\n", number("gflops"));
  };
  const Json& config = report.at("config");
  const auto flag = [&](const char* key) { return config.at(key).get<int>(); };
  add(fmt::format("P prefill {} x {}", flag("prefill_prompts"), flag("prefill_prompt_tokens")),
      "prefill", false);
  add(fmt::format("1 decode 1 behind {}", flag("decode_prompt_tokens")), "single_decode", true);
  add(fmt::format("D decode {} behind {}", flag("decode_sequences"), flag("decode_prompt_tokens")),
      "decode", true);
  add(fmt::format("S {} that share all but {}", flag("decode_sequences"), kOwnTokens),
      "shared_decode", true);
  return text + "\n" + kv_slots_text(report) +
         "peaks of a GPU are not measured here: cuda_bench has them, and each kernel's share\n";
}

}  // namespace batchmill
