#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <memory>

#include "engine/cpu/cpu_memory.h"
#include "engine/cpu/speed_probe.h"
#include "queue/wire.h"
#include "tools/bench_workloads.h"
#include "tools/commands.h"
#include "tools/cpu_devices.h"
#include "tools/exit_code.h"
#include "tools/quality.h"
#include "tools/served_models.h"

namespace batchmill {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double tokens_per_second(const std::vector<Measured>& runs) {
  std::vector<double> rates;
  for (const Measured& run : runs) rates.push_back(static_cast<double>(run.tokens) / run.seconds);
  return median(rates);
}

// How much longer each workload takes with the deterministic option, in percent.
Json deterministic_cost(const Workloads& with, const Workloads& without) {
  const auto percent = [](const std::vector<Measured>& slow, const std::vector<Measured>& fast) {
    return 100.0 * (tokens_per_second(fast) / tokens_per_second(slow) - 1.0);
  };
  return {{"prefill", percent(with.prefill, without.prefill)},
          {"decode", percent(with.decode, without.decode)},
          {"shared_decode", percent(with.shared_decode, without.shared_decode)}};
}

struct Peaks {
  double gemm_flops = 0.0;  // floating-point operations per second
  double read_bytes = 0.0;  // bytes per second
};

template <typename Probe>
double best_rate(Probe* probe, double amount, int runs, const char* what) {
  probe->run();
  if (!probe->result_is_right()) {
    throw ToolError(kExitUsage, std::string(what) + " gives wrong results on this processor");
  }
  double best = 0.0;
  for (int i = 0; i < runs; ++i) {
    const Clock::time_point start = Clock::now();
    probe->run();
    best = std::max(best, amount / seconds_since(start));
  }
  return best;
}

Peaks measure_peaks(const CpuPlan& plan, int runs) {
  Peaks peaks;
  {
    GemmProbe probe(plan.dtype, plan.threads);
    peaks.gemm_flops = best_rate(&probe, probe.operations(), runs, "the matrix product");
  }
  ReadProbe probe(plan.threads);
  peaks.read_bytes = best_rate(&probe, probe.bytes(), runs, "reading memory");
  return peaks;
}

Json rates_json(const std::vector<Measured>& runs, const Peaks& peaks) {
  std::vector<double> rates, seconds;
  BackendSums sums;
  double total_seconds = 0.0;
  for (const Measured& run : runs) {
    rates.push_back(static_cast<double>(run.tokens) / run.seconds);
    seconds.push_back(run.seconds);
    sums.gemm.add(run.sums.gemm);
    sums.attention.add(run.sums.attention);
    total_seconds += run.seconds;
  }
  const auto part = [&](const OperationSums& operations) {
    const double flops = operations.operations / operations.seconds;
    return Json{{"time_share", operations.seconds / total_seconds},
                {"gflops", flops / 1e9},
                {"share_of_gemm_peak", flops / peaks.gemm_flops}};
  };
  Json attention = part(sums.attention);
  const double bytes = sums.attention.kv_bytes / sums.attention.seconds;
  attention["kv_gb_per_second"] = bytes / 1e9;
  attention["share_of_read_peak"] = bytes / peaks.read_bytes;
  const double all = sums.gemm.operations + sums.attention.operations;
  return {{"tokens", runs.front().tokens},
          {"tokens_per_second", median(rates)},
          {"tokens_per_second_min", *std::min_element(rates.begin(), rates.end())},
          {"tokens_per_second_max", *std::max_element(rates.begin(), rates.end())},
          {"seconds", median(seconds)},
          {"share_of_gemm_peak", all / total_seconds / peaks.gemm_flops},
          {"gemm", part(sums.gemm)},
          {"attention", std::move(attention)},
          {"other_time_share", 1.0 - (sums.gemm.seconds + sums.attention.seconds) / total_seconds}};
}

void print_rates(const char* name, const Json& rates) {
  const auto number = [](const Json& value) { return value.get<double>(); };
  const Json& gemm = rates.at("gemm");
  const Json& attention = rates.at("attention");
  std::cout << fmt::format("{:<8} {:>9.0f} tokens/s, {:.1f} % of the GEMM peak\n", name,
                           number(rates.at("tokens_per_second")),
                           100 * number(rates.at("share_of_gemm_peak")));
  std::cout << fmt::format(
      "  GEMMs      {:>5.1f} % of the time, {:>8.1f} GFLOP/s, {:.1f} % of the peak\n",
      100 * number(gemm.at("time_share")), number(gemm.at("gflops")),
      100 * number(gemm.at("share_of_gemm_peak")));
  std::cout << fmt::format(
      "  attention  {:>5.1f} % of the time, {:>8.1f} GFLOP/s, {:.1f} % of the peak; reads {:.2f} "
      "GB/s\n",
      100 * number(attention.at("time_share")), number(attention.at("gflops")),
      100 * number(attention.at("share_of_gemm_peak")), number(attention.at("kv_gb_per_second")));
  std::cout << fmt::format("  the rest   {:>5.1f} % of the time\n",
                           100 * number(rates.at("other_time_share")));
}

int bench(const Settings& settings, BenchFlags flags) {
  const DaemonConfig config = settings.load();
  const std::vector<ServedModel> models = open_models(config);
  const Model& model = *models.front().model;
  if (model.config().encoder) {
    throw ToolError(kExitUsage,
                    "bench measures models that generate text; this one makes embeddings");
  }
  const CpuOptions options = cpu_options(config, config.models.front());

  EngineOptions engine_options = config.engine.options;
  engine_options.max_context_tokens = model.config().max_context_tokens;
  engine_options.max_num_seqs = std::max(engine_options.max_num_seqs, flags.decode_sequences);
  const std::int32_t context = model.config().max_context_tokens;
  flags.prefill_tokens = std::min(flags.prefill_tokens, context - 1);
  flags.decode_prompt_tokens = std::min(flags.decode_prompt_tokens, context / 2);
  flags.decode_tokens = std::min(flags.decode_tokens, context / 2);
  const auto blocks_for = [&](int sequences, int tokens) {
    return sequences * ((tokens + options.block_size_tokens) / options.block_size_tokens + 1);
  };
  const std::int32_t num_blocks = std::max(
      blocks_for(flags.prefill_prompts, flags.prefill_tokens + 1),
      blocks_for(flags.decode_sequences, flags.decode_prompt_tokens + flags.decode_tokens));
  BenchModel bench(model, options, engine_options, num_blocks);
  const CpuPlan& plan = bench.plan();
  const Peaks peaks = measure_peaks(plan, flags.runs);
  // The same with the deterministic option turned over, round by round in turn, where the memory
  // holds the weights twice.
  std::unique_ptr<BenchModel> other;
  if (available_memory_bytes() > plan.weight_bytes * 5 / 4) {
    CpuOptions turned = options;
    turned.deterministic = !options.deterministic;
    other = std::make_unique<BenchModel>(model, turned, engine_options, num_blocks);
  }
  Workloads workloads, other_workloads;
  for (int i = 0; i <= flags.runs; ++i) {  // the first round warms up
    bench.run_round(flags, i == 0 ? nullptr : &workloads);
    if (other != nullptr) other->run_round(flags, i == 0 ? nullptr : &other_workloads);
  }
  Json cost = nullptr;
  if (other != nullptr) {
    cost = options.deterministic ? deterministic_cost(workloads, other_workloads)
                                 : deterministic_cost(other_workloads, workloads);
  }
  const std::vector<std::string> implementations = bench.gemm_implementations();

  Json report = {{"version", BATCHMILL_VERSION},
                 {"device", bench.describe()},
                 {"model", models.front().name},
                 {"dtype", dtype_name(plan.dtype)},
                 {"kv_dtype", dtype_name(plan.kv_dtype)},
                 {"threads", plan.threads},
                 {"config",
                  {{"seed", kBenchSeed},
                   {"runs", flags.runs},
                   {"prefill_prompts", flags.prefill_prompts},
                   {"prefill_prompt_tokens", flags.prefill_tokens},
                   {"decode_sequences", flags.decode_sequences},
                   {"decode_prompt_tokens", flags.decode_prompt_tokens},
                   {"decode_tokens", flags.decode_tokens},
                   {"max_num_batched_tokens", engine_options.max_num_batched_tokens}}},
                 {"gemm_peak_gflops", peaks.gemm_flops / 1e9},
                 {"read_peak_gb_per_second", peaks.read_bytes / 1e9},
                 {"prefill", rates_json(workloads.prefill, peaks)},
                 {"decode", rates_json(workloads.decode, peaks)},
                 {"shared_decode", rates_json(workloads.shared_decode, peaks)},
                 {"deterministic", options.deterministic},
                 {"deterministic_cost_percent", cost},
                 {"gemm_implementations", implementations}};
  if (settings.json) {
    std::cout << report.dump() << std::endl;
    return kExitDone;
  }
  std::cout << fmt::format("{} on {}, {} threads, {} (KV {})\n", models.front().name,
                           bench.describe(), plan.threads, dtype_name(plan.dtype),
                           dtype_name(plan.kv_dtype));
  std::cout << fmt::format("measured peaks: {:.1f} GFLOP/s in GEMMs, {:.2f} GB/s of reading\n",
                           peaks.gemm_flops / 1e9, peaks.read_bytes / 1e9);
  print_rates("prefill", report.at("prefill"));
  print_rates("decode", report.at("decode"));
  print_rates("shared", report.at("shared_decode"));
  if (cost.is_null()) {
    std::cout << "what deterministic costs is not measured: no memory for the weights twice\n";
  } else {
    std::cout << fmt::format(
        "deterministic costs {:+.1f} % of prefill, {:+.1f} % of decode, {:+.1f} % of decode after "
        "shared prompts{}\n",
        cost.at("prefill").get<double>(), cost.at("decode").get<double>(),
        cost.at("shared_decode").get<double>(), options.deterministic ? " (in use)" : "");
  }
  // "960x576 rows 64: brg:…" by what is behind the shape.
  std::map<std::string, int> shapes_by_name;
  for (const std::string& line : implementations) {
    const std::size_t colon = line.find(": ");
    ++shapes_by_name[colon == std::string::npos ? line : line.substr(colon + 2)];
  }
  for (const auto& [name, shapes] : shapes_by_name) {
    std::cout << fmt::format("products of {} shapes by {}\n", shapes, name);
  }
  std::cout << std::flush;
  return kExitDone;
}

int bench_quality(const Settings& settings) {
  const DaemonConfig config = settings.load();
  const std::vector<ServedModel> models = open_models(config);
  const CpuOptions options = cpu_options(config, config.models.front());
  const QualityReport report = measure_quality(*models.front().model, options);
  const QualityRun& f32 = report.runs.front();
  const QualityRun& in_use = report.runs.back();
  const auto loss = [](const QualityRun& run, const QualityRun& reference) {
    return 100.0 * (run.perplexity / reference.perplexity - 1.0);
  };
  const auto bf16 = std::find_if(report.runs.begin(), report.runs.end(), [](const QualityRun& run) {
    return run.plan.dtype == DType::kBF16;
  });
  if (settings.json) {
    Json runs = Json::array();
    for (const QualityRun& run : report.runs) {
      runs.push_back({{"dtype", dtype_name(run.plan.dtype)},
                      {"kv_dtype", dtype_name(run.plan.kv_dtype)},
                      {"device", run.device},
                      {"perplexity", run.perplexity},
                      {"loss_percent_vs_f32", loss(run, f32)},
                      {"loss_percent_vs_bf16", loss(run, *bf16)},
                      {"best_token_agreement", run.agreement}});
    }
    const Json json = {{"version", BATCHMILL_VERSION},
                       {"model", models.front().name},
                       {"predicted_tokens", report.num_tokens},
                       {"window_tokens", report.window_tokens},
                       {"dtype", dtype_name(in_use.plan.dtype)},
                       {"kv_dtype", dtype_name(in_use.plan.kv_dtype)},
                       {"runs", std::move(runs)}};
    std::cout << json.dump() << std::endl;
    return kExitDone;
  }
  std::cout << fmt::format("{} predicts {} tokens in windows of {}\n", models.front().name,
                           report.num_tokens, report.window_tokens);
  for (const QualityRun& run : report.runs) {
    std::cout << fmt::format(
        "{:<5} KV {:<5} perplexity {:.4f}, {:+.3f} % to f32, {:+.3f} % to bf16; most likely token "
        "equal to f32's in {:.2f} %{}\n",
        dtype_name(run.plan.dtype), dtype_name(run.plan.kv_dtype), run.perplexity, loss(run, f32),
        loss(run, *bf16), 100.0 * run.agreement, &run == &in_use ? " (in use)" : "");
  }
  std::cout << std::flush;
  return kExitDone;
}

}  // namespace

void add_bench_command(CLI::App* app, Settings* settings, Action* action) {
  CLI::App* command = add_command(app, "bench", "How fast a model runs here, beside the peak",
                                  "batchmill bench --model model.gguf --json");
  auto flags = std::make_shared<BenchFlags>();
  const auto number = [&](const char* name, int* value, const char* text, int max) {
    command->add_option(name, *value, fmt::format("{} [{}]", text, *value))
        ->check(CLI::Range(1, max))
        ->type_name("N");
  };
  add_model_flags(command, settings);
  number("--runs", &flags->runs, "Measured runs, after one that warms up", 1'000);
  number("--prefill-prompts", &flags->prefill_prompts, "Prompts of the prefill workload", 4'096);
  number("--prefill-tokens", &flags->prefill_tokens, "Tokens in each of them", 1 << 20);
  number("--decode-sequences", &flags->decode_sequences, "Sequences that decode together", 4'096);
  number("--decode-prompt-tokens", &flags->decode_prompt_tokens, "Tokens before them", 1 << 20);
  number("--decode-tokens", &flags->decode_tokens, "Tokens that each generates", 1 << 20);
  command->add_flag("--quality", flags->quality,
                    "Perplexity of the types in use beside the f32 and bf16 paths, instead");
  command->callback([=] {
    *action = [=] { return flags->quality ? bench_quality(*settings) : bench(*settings, *flags); };
  });
}

}  // namespace batchmill
