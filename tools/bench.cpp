#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <random>

#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/cpu_runner.h"
#include "engine/cpu/speed_probe.h"
#include "engine/engine.h"
#include "engine/transformer.h"
#include "queue/wire.h"
#include "tools/commands.h"
#include "tools/cpu_devices.h"
#include "tools/exit_code.h"
#include "tools/quality.h"
#include "tools/served_models.h"
#include "tools/timing_backend.h"

namespace batchmill {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::uint32_t kSeed = 20'250'101;

struct BenchFlags {
  bool quality = false;
  int runs = 5;
  int prefill_prompts = 4;
  int prefill_tokens = 512;
  int decode_sequences = 64;
  int decode_prompt_tokens = 128;
  int decode_tokens = 32;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// What one kind of step cost in one run.
struct Measured {
  double seconds = 0.0;
  std::int64_t tokens = 0;
  BackendSums sums;
};

// The model on the CPU backend, with a stopwatch between the two.
class Bench {
 public:
  Bench(const Model& model, const CpuOptions& options, const EngineOptions& engine_options,
        std::int32_t num_blocks)
      : plan_(plan_cpu(model.config(), options)), engine_options_(engine_options), model_(model) {
    auto cpu = std::make_unique<CpuBackend>(plan_.dtype, plan_.threads, options.instruction_set);
    cpu_ = cpu.get();
    Weights weights = load_weights(model.tensors(), model.config(), cpu.get());
    KvCacheShape shape;
    shape.num_layers = model.config().num_layers;
    shape.num_blocks = num_blocks;
    shape.block_size_tokens = options.block_size_tokens;
    shape.num_kv_heads = model.config().num_kv_heads;
    shape.head_dim = model.config().head_dim;
    shape.dtype = plan_.kv_dtype;
    auto cache = cpu->make_kv_cache(shape);
    transformer_ = std::make_unique<Transformer>(
        model.config(), std::make_unique<TimingBackend>(std::move(cpu), &sums_), std::move(weights),
        std::move(cache));
  }

  // Runs `count` prompts of random ids to their ends. Steps are told apart by what they hold; a
  // step that mixes both kinds counts for neither. Returns a hash of what was generated.
  std::uint64_t run(int count, int prompt_tokens, int max_tokens, Measured* prefill,
                    Measured* decode) {
    Engine engine(engine_options_, transformer_.get(), nullptr);
    std::mt19937 random(kSeed);
    std::uniform_int_distribution<TokenId> any_token(0, model_.config().vocab_size - 1);
    for (int i = 0; i < count; ++i) {
      Request request;
      request.id = static_cast<RequestId>(i);
      for (int t = 0; t < prompt_tokens; ++t) request.prompt.push_back(any_token(random));
      request.params.temperature = 0.0f;
      request.params.max_tokens = max_tokens;
      request.params.ignore_eos = true;
      engine.add(std::move(request));
    }
    std::uint64_t hash = 14'695'981'039'346'656'037ull;
    while (engine.has_work()) {
      sums_ = {};
      const Clock::time_point start = Clock::now();
      const StepOutput step = engine.step();
      const double seconds = seconds_since(start);
      std::int64_t prefill_rows = 0;
      std::int64_t decode_rows = 0;
      for (const RequestWork& work : step.work) {
        prefill_rows += work.num_prefill_tokens;
        decode_rows += work.num_decode_tokens;
      }
      Measured* kind = decode_rows == 0 ? prefill : prefill_rows == 0 ? decode : nullptr;
      if (kind != nullptr) {
        kind->seconds += seconds;
        kind->tokens += prefill_rows + decode_rows;
        kind->sums.gemm.add(sums_.gemm);
        kind->sums.attention.add(sums_.attention);
      }
      for (const RequestOutput& output : step.finished) {
        for (const TokenId id : output.choices.front().token_ids) {
          hash ^= static_cast<std::uint64_t>(id) + (output.id << 32);
          hash *= 1'099'511'628'211ull;
        }
      }
    }
    return hash;
  }

  const CpuPlan& plan() const { return plan_; }
  std::vector<std::string> gemm_implementations() const { return cpu_->gemm_implementations(); }
  std::string describe() const { return cpu_->describe(); }

 private:
  CpuPlan plan_;
  EngineOptions engine_options_;
  const Model& model_;
  CpuBackend* cpu_ = nullptr;  // the transformer's
  BackendSums sums_;
  std::unique_ptr<Transformer> transformer_;
};

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

int bench(const Settings& settings, const BenchFlags& flags) {
  const DaemonConfig config = settings.load();
  const std::vector<ServedModel> models = open_models(config);
  const Model& model = *models.front().model;
  const CpuOptions options = cpu_options(config, config.models.front());

  EngineOptions engine_options = config.engine.options;
  engine_options.max_context_tokens = model.config().max_context_tokens;
  engine_options.max_num_seqs = std::max(engine_options.max_num_seqs, flags.decode_sequences);
  const std::int32_t context = model.config().max_context_tokens;
  const int prefill_tokens = std::min(flags.prefill_tokens, context - 1);
  const int decode_prompt = std::min(flags.decode_prompt_tokens, context / 2);
  const int decode_tokens = std::min(flags.decode_tokens, context / 2);
  const auto blocks_for = [&](int sequences, int tokens) {
    return sequences * ((tokens + options.block_size_tokens) / options.block_size_tokens + 1);
  };
  Bench bench(model, options, engine_options,
              std::max(blocks_for(flags.prefill_prompts, prefill_tokens + 1),
                       blocks_for(flags.decode_sequences, decode_prompt + decode_tokens)));

  const Peaks peaks = measure_peaks(bench.plan(), flags.runs);
  std::vector<Measured> prefill, decode;
  std::uint64_t first_hash = 0;
  for (int i = 0; i <= flags.runs; ++i) {  // the first one warms up
    Measured prefill_run, decode_run, ignored;
    std::uint64_t hash =
        bench.run(flags.prefill_prompts, prefill_tokens, 1, &prefill_run, &ignored);
    hash ^= bench.run(flags.decode_sequences, decode_prompt, decode_tokens, &ignored, &decode_run);
    if (i == 0) {
      first_hash = hash;
      continue;
    }
    if (hash != first_hash) {
      throw ToolError(kExitUsage, "two runs of the same workload gave different tokens");
    }
    prefill.push_back(prefill_run);
    decode.push_back(decode_run);
  }

  Json report = {{"version", BATCHMILL_VERSION},
                 {"device", bench.describe()},
                 {"model", models.front().name},
                 {"dtype", dtype_name(bench.plan().dtype)},
                 {"kv_dtype", dtype_name(bench.plan().kv_dtype)},
                 {"threads", bench.plan().threads},
                 {"config",
                  {{"seed", kSeed},
                   {"runs", flags.runs},
                   {"prefill_prompts", flags.prefill_prompts},
                   {"prefill_prompt_tokens", prefill_tokens},
                   {"decode_sequences", flags.decode_sequences},
                   {"decode_prompt_tokens", decode_prompt},
                   {"decode_tokens", decode_tokens},
                   {"max_num_batched_tokens", engine_options.max_num_batched_tokens}}},
                 {"gemm_peak_gflops", peaks.gemm_flops / 1e9},
                 {"read_peak_gb_per_second", peaks.read_bytes / 1e9},
                 {"prefill", rates_json(prefill, peaks)},
                 {"decode", rates_json(decode, peaks)},
                 {"gemm_implementations", bench.gemm_implementations()}};
  if (settings.json) {
    std::cout << report.dump() << std::endl;
    return kExitDone;
  }
  std::cout << fmt::format("{} on {}, {} threads, {} (KV {})\n", models.front().name,
                           bench.describe(), bench.plan().threads, dtype_name(bench.plan().dtype),
                           dtype_name(bench.plan().kv_dtype));
  std::cout << fmt::format("measured peaks: {:.1f} GFLOP/s in GEMMs, {:.2f} GB/s of reading\n",
                           peaks.gemm_flops / 1e9, peaks.read_bytes / 1e9);
  print_rates("prefill", report.at("prefill"));
  print_rates("decode", report.at("decode"));
  for (const std::string& name : bench.gemm_implementations()) std::cout << "  " << name << '\n';
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
