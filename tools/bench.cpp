#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <memory>

#include "engine/cpu/cpu_memory.h"
#include "engine/cpu/speed_probe.h"
#include "engine/model_size.h"
#include "queue/wire.h"
#include "tools/bench_report.h"
#include "tools/bench_workloads.h"
#include "tools/commands.h"
#include "tools/cpu_bench.h"
#include "tools/cpu_devices.h"
#include "tools/devices.h"
#include "tools/exit_code.h"
#include "tools/gpu_bench.h"
#include "tools/quality.h"
#include "tools/served_models.h"

namespace batchmill {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kProbeRuns = 25;  // short ones

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Of `runs`, after one that warms up.
template <typename Probe>
std::vector<double> seconds_of(Probe* probe, int runs, const char* what) {
  probe->run();
  if (!probe->result_is_right()) {
    throw ToolError(kExitUsage, std::string(what) + " gives wrong results on this processor");
  }
  std::vector<double> seconds;
  for (int i = 0; i < runs; ++i) {
    const Clock::time_point start = Clock::now();
    probe->run();
    seconds.push_back(seconds_since(start));
  }
  return seconds;
}

// What memory gives for a while: a step reads for as long, and the neighbours of a virtual machine
// take their part of both.
double read_peak(std::int32_t threads) {
  ReadProbe probe(threads);
  return probe.bytes() / median(seconds_of(&probe, kProbeRuns, "reading memory"));
}

// Operations per second of oneDNN alone at the layers' products, each as often as it was run.
double shapes_peak(const CpuPlan& plan, std::int32_t threads, std::int32_t rows,
                   const BackendSums& sums, int runs) {
  double operations = 0.0;
  double seconds = 0.0;
  for (const auto& [shape, measured] : sums.products) {
    ProductProbe probe(plan.dtype, threads, rows, shape.first, shape.second);
    operations += measured.operations;
    seconds += measured.operations / probe.operations() *
               std::ranges::min(seconds_of(&probe, runs, "oneDNN's matrix product"));
  }
  return operations / seconds;
}

// How much longer it takes with the deterministic option, in percent.
double cost_percent(const std::vector<Measured>& with, const std::vector<Measured>& without) {
  return 100.0 * (tokens_per_second(without) / tokens_per_second(with) - 1.0);
}

void print_report(const Json& report, const BenchFlags& flags) {
  const auto number = [](const Json& value) { return value.get<double>(); };
  std::cout << fmt::format(
      "{} on {}, {} threads, {} (KV {})\n\n", report.at("model").get<std::string>(),
      report.at("device").get<std::string>(), report.at("threads").get<int>(),
      report.at("dtype").get<std::string>(), report.at("kv_dtype").get<std::string>());
  const Peaks peaks = {1e9 * number(report.at("gemm_peak_gflops")),
                       1e9 * number(report.at("read_peak_gb_per_second"))};
  std::cout << roofline_text(peaks, {{'P', report.at("prefill")},
                                     {'1', report.at("single_decode")},
                                     {'D', report.at("decode")},
                                     {'S', report.at("shared_decode")}})
            << "\n";
  std::cout << case_text(
      fmt::format("P prefill {} x {}", flags.prefill_prompts, flags.prefill_tokens),
      report.at("prefill"));
  std::cout << case_text(fmt::format("1 decode 1 behind {}", flags.decode_prompt_tokens),
                         report.at("single_decode"));
  std::cout << case_text(
      fmt::format("D decode {} behind {}", flags.decode_sequences, flags.decode_prompt_tokens),
      report.at("decode"));
  std::cout << case_text(
      fmt::format("S {} that share all but {}", flags.decode_sequences, kOwnTokens),
      report.at("shared_decode"));
  std::cout << "\n" << kv_slots_text(report);
  if (const Json& scaling = report.at("scaling"); !scaling.is_null()) {
    std::cout << fmt::format("prefill on {} threads is {:.2f} times as fast as on one\n",
                             scaling.at("threads").get<int>(), number(scaling.at("prefill")));
  }
  if (const Json& cost = report.at("deterministic_cost_percent"); cost.is_null()) {
    std::cout << "what deterministic costs is not measured: no memory for the weights twice\n";
  } else {
    std::cout << fmt::format("deterministic costs {:+.1f} % of prefill, {:+.1f} % of decode{}\n",
                             number(cost.at("prefill")), number(cost.at("decode")),
                             report.at("deterministic").get<bool>() ? " (in use)" : "");
  }
  // "960x576 rows 64: brg:…" by what is behind the shape.
  std::map<std::string, int> shapes_by_name;
  for (const Json& item : report.at("gemm_implementations")) {
    const auto line = item.get<std::string>();
    const std::size_t colon = line.find(": ");
    ++shapes_by_name[colon == std::string::npos ? line : line.substr(colon + 2)];
  }
  for (const auto& [name, shapes] : shapes_by_name) {
    std::cout << fmt::format("products of {} shapes by {}\n", shapes, name);
  }
  std::cout << std::flush;
}

int bench(const Settings& settings, BenchFlags flags) {
  const DaemonConfig config = settings.load();
  const std::vector<ServedModel> models = open_models(config);
  const Model& model = *models.front().model;
  if (model.config().encoder) {
    throw ToolError(kExitUsage,
                    "bench measures models that generate text; this one makes embeddings");
  }
  fit_to_context(&flags, model.config().max_context_tokens);
  if (!describe_gpus_of(config, configs_of(models), 0).empty()) {
    const Json report = bench_gpu(config, models.front(), flags);
    std::cout << (settings.json ? report.dump() + "\n" : gpu_bench_text(report)) << std::flush;
    return kExitDone;
  }
  const CpuOptions options = cpu_options(config, config.models.front());
  EngineOptions engine_options = config.engine.options;
  engine_options.max_context_tokens = model.config().max_context_tokens;
  engine_options.max_num_seqs = std::max(engine_options.max_num_seqs, flags.decode_sequences);
  const std::int32_t num_blocks = blocks_needed(flags, engine_options, options.block_size_tokens);
  CpuBench bench(model, options, engine_options, num_blocks);
  const CpuPlan& plan = bench.plan();
  const Workloads workloads = measure(&bench, flags);

  Peaks peaks;
  const std::int32_t rows =
      std::min(flags.prefill_prompts * flags.prefill_tokens, engine_options.max_num_batched_tokens);
  const BackendSums& prefill_sums = workloads.prefill.back().sums;
  peaks.gemm_flops = shapes_peak(plan, plan.threads, rows, prefill_sums, kProbeRuns);
  peaks.read_bytes = read_peak(plan.threads);

  // The same with the deterministic option turned over, where the memory holds the weights twice.
  Json cost = nullptr;
  if (available_memory_bytes() > plan.weight_bytes * 5 / 4) {
    CpuOptions turned = options;
    turned.deterministic = !options.deterministic;
    CpuBench other(model, turned, engine_options, num_blocks);
    const std::vector<Measured> prefill = measure_prefill(&other, flags, flags.runs);
    const std::vector<Measured> decode = other.decode(shared_work(flags), flags.runs);
    const double sign = options.deterministic ? -1.0 : 1.0;
    cost = {{"prefill", sign * cost_percent(prefill, workloads.prefill)},
            {"decode", sign * cost_percent(decode, workloads.shared_decode)}};
  }
  // Prefill on one thread.
  Json scaling = nullptr;
  if (plan.threads > 1 && available_memory_bytes() > plan.weight_bytes * 5 / 4) {
    CpuOptions one = options;
    one.threads = 1;
    CpuBench single(model, one, engine_options, num_blocks);
    const std::vector<Measured> prefill =
        measure_prefill(&single, flags, std::max(flags.runs / 2, 1));
    scaling = {{"threads", plan.threads},
               {"prefill", tokens_per_second(workloads.prefill) / tokens_per_second(prefill)}};
  }

  const ModelSize size = measure_model(model.config());
  const auto report_case = [&](const char* name, const std::vector<Measured>& runs,
                               double shapes_flops) {
    BenchCase measured;
    measured.name = name;
    measured.runs = runs;
    measured.weight_bytes =
        static_cast<double>(size.matrices + size.output) * dtype_bytes(plan.dtype);
    measured.kv_bytes_per_token = static_cast<double>(plan.kv_bytes_per_token);
    measured.shapes_flops = shapes_flops;
    return case_json(measured, peaks);
  };
  const std::int64_t held = workloads.decode.back().held_slots;
  const std::int64_t empty = workloads.decode.back().empty_slots;
  const std::vector<std::string> implementations = bench.gemm_implementations();
  Json report = {{"version", BATCHMILL_VERSION},
                 {"device", bench.describe()},
                 {"model", models.front().name},
                 {"dtype", dtype_name(plan.dtype)},
                 {"kv_dtype", dtype_name(plan.kv_dtype)},
                 {"threads", plan.threads},
                 {"config", config_json(flags, engine_options, options.block_size_tokens)},
                 {"gemm_peak_gflops", peaks.gemm_flops / 1e9},
                 {"read_peak_gb_per_second", peaks.read_bytes / 1e9},
                 {"prefill", report_case("prefill", workloads.prefill, peaks.gemm_flops)},
                 {"single_decode", report_case("single_decode", workloads.single_decode, 0.0)},
                 {"decode", report_case("decode", workloads.decode, 0.0)},
                 {"shared_decode", report_case("shared_decode", workloads.shared_decode, 0.0)},
                 {"kv_slots", kv_slots_json(held, empty, options.block_size_tokens)},
                 {"scaling", scaling},
                 {"deterministic", options.deterministic},
                 {"deterministic_cost_percent", cost},
                 {"gemm_implementations", implementations}};
  if (settings.json) {
    std::cout << report.dump() << std::endl;
    return kExitDone;
  }
  print_report(report, flags);
  return kExitDone;
}

int bench_quality(const Settings& settings) {
  const DaemonConfig config = settings.load();
  const std::vector<ServedModel> models = open_models(config);
  require_cpu(config.models.front(), "bench --quality");
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
