#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <iostream>

#include "actors/line_preparer.h"
#include "engine/cpu/cpu_memory.h"
#include "queue/input_stream.h"
#include "queue/wire.h"
#include "tools/commands.h"
#include "tools/cpu_devices.h"
#include "tools/device_rates.h"
#include "tools/estimate_job.h"
#include "tools/exit_code.h"
#include "tools/served_models.h"
#include "tools/table.h"

namespace batchmill {
namespace {

constexpr std::size_t kReadBytes = 1 << 20;

std::int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// The models as the daemon would serve them, without a device.
std::vector<ModelCatalog::Entry> catalog_entries(const DaemonConfig& config,
                                                 const std::vector<ServedModel>& models) {
  std::vector<ModelCatalog::Entry> entries;
  for (std::size_t i = 0; i < models.size(); ++i) {
    ModelConfigEntry configured = config.models[i];
    if (configured.kv_dtype == "fp8") configured.kv_dtype = "int8";  // as large, and the CPU has it
    const CpuOptions options = cpu_options(config, configured);
    const CpuPlan plan = plan_cpu(models[i].model->config(), options);
    ModelCatalog::Entry entry;
    entry.served = models[i];
    const std::int32_t trained = models[i].model->config().max_context_tokens;
    const std::int32_t lowered = models[i].max_context_tokens;
    entry.context_tokens = lowered > 0 ? std::min(lowered, trained) : trained;
    entry.pool_tokens = plan.num_blocks * options.block_size_tokens;
    if (models[i].model->config().encoder) {
      entry.embedding_size = models[i].model->config().hidden_size;
      entry.pool_tokens = entry.context_tokens;
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

JobEstimate read_job(const std::string& file, const DaemonConfig& config,
                     const ModelCatalog& catalog) {
  const LinePreparer preparer(&catalog, config.engine.default_max_tokens, config.engine.max_choices,
                              config.queue.options.max_line_bytes);
  const std::unique_ptr<InputStream> input = InputStream::open(file);
  EstimateJob job(&preparer, std::filesystem::temp_directory_path().string(), unix_seconds(),
                  available_threads());
  LineSplitter splitter(config.queue.options.max_line_bytes, 1, 0);
  std::string buffer(kReadBytes, '\0');
  std::vector<InputLine> lines;
  std::uint64_t offset = 0;
  while (const std::size_t size = input->read_at(offset, buffer.data(), buffer.size())) {
    offset += size;
    splitter.feed(std::string_view(buffer).substr(0, size), &lines);
    job.add(lines);
    lines.clear();
  }
  splitter.finish(&lines);
  job.add(lines);
  JobEstimate estimate = job.finish();
  if (estimate.lines == 0) throw ToolError(kExitUsage, file + " holds no request (empty_file)");
  return estimate;
}

Json model_json(const std::string& name, const ModelEstimate& model, const Price& price,
                const DeviceRates& rates) {
  const std::uint64_t cached = model.prompt_tokens - model.computed_tokens;
  const Picos prompt = cost_of(model.computed_tokens, price.input);
  const Picos prompt_cached = cost_of(cached, price.cached_input);
  const Picos completion = cost_of(model.max_completion_tokens, price.output);
  const double prefill_s =
      static_cast<double>(model.computed_tokens) / rates.prefill_tokens_per_second;
  const double decode_s =
      model.max_completion_tokens == 0
          ? 0.0
          : static_cast<double>(model.max_completion_tokens) / rates.decode_tokens_per_second;
  return {{"model", name},
          {"lines", model.lines},
          {"tokens",
           {{"prompt", model.prompt_tokens},
            {"prompt_cached", cached},
            {"prompt_computed", model.computed_tokens},
            {"completion_at_most", model.max_completion_tokens}}},
          {"currency", price.currency},
          {"price_version", price.version},
          {"cost",
           {{"prompt", format_picos(prompt)},
            {"prompt_cached", format_picos(prompt_cached)},
            {"completion_at_most", format_picos(completion)},
            {"total_at_most", format_picos(prompt + prompt_cached + completion)}}},
          {"device_seconds",
           {{"prefill", prefill_s},
            {"decode_at_most", decode_s},
            {"total_at_most", prefill_s + decode_s}}},
          {"rates",
           {{"prefill_tokens_per_second", rates.prefill_tokens_per_second},
            {"decode_tokens_per_second", rates.decode_tokens_per_second},
            {"source", rates.source}}}};
}

std::string duration_text(double seconds) {
  if (seconds < 120.0) return fmt::format("{:.1f} s", seconds);
  if (seconds < 7200.0) return fmt::format("{:.0f} min", seconds / 60.0);
  return fmt::format("{:.1f} h", seconds / 3600.0);
}

void print(const Json& report) {
  std::cout << fmt::format("{} lines, {} can run\n", report.at("lines").at("total").dump(),
                           report.at("lines").at("valid").dump());
  for (const auto& [code, count] : report.at("errors").items()) {
    std::cout << fmt::format("  {} will fail: {}\n", count.dump(), code);
  }
  for (const Json& model : report.at("models")) {
    const Json& tokens = model.at("tokens");
    const Json& cost = model.at("cost");
    const Json& seconds = model.at("device_seconds");
    const double prompt = tokens.at("prompt");
    const double cached = tokens.at("prompt_cached");
    const auto line = [](const char* label, const std::string& text) {
      std::cout << fmt::format("  {:<12} {}\n", label, text);
    };
    std::cout << fmt::format("{}: {} lines\n", model.at("model").get<std::string>(),
                             model.at("lines").dump());
    line("prompts",
         fmt::format("{} tokens, {} of them shared prefixes that are computed once ({:.1f} %)",
                     tokens.at("prompt").dump(), tokens.at("prompt_cached").dump(),
                     prompt == 0.0 ? 0.0 : 100.0 * cached / prompt));
    line("answers", fmt::format("at most {} tokens", tokens.at("completion_at_most").dump()));
    line("cost",
         fmt::format("at most {} {} (prompts {}, cached {}, answers {})",
                     cost.at("total_at_most").get<std::string>(),
                     model.at("currency").get<std::string>(), cost.at("prompt").get<std::string>(),
                     cost.at("prompt_cached").get<std::string>(),
                     cost.at("completion_at_most").get<std::string>()));
    const Json& rates = model.at("rates");
    line("time", fmt::format("{} on this machine when nothing else runs on it: prompts {}, answers "
                             "at their longest {}",
                             duration_text(seconds.at("total_at_most")),
                             duration_text(seconds.at("prefill")),
                             duration_text(seconds.at("decode_at_most"))));
    line("rates", fmt::format("{:.0f} and {:.0f} tokens/s, from {}",
                              rates.at("prefill_tokens_per_second").get<double>(),
                              rates.at("decode_tokens_per_second").get<double>(),
                              rates.at("source").get<std::string>()));
  }
}

int estimate(const Settings& settings, const std::string& file) {
  const DaemonConfig config = settings.load();
  const std::vector<ServedModel> models = open_models(config);
  const ModelCatalog catalog(catalog_entries(config, models));
  const auto tell = [&](const std::string& what) {
    if (!settings.quiet) std::cerr << what << std::endl;
  };
  tell("reading " + file);
  const JobEstimate found = read_job(file, config, catalog);

  Json models_json = Json::array();
  std::uint64_t valid = 0;
  for (const auto& [name, model] : found.models) {
    const auto served = std::ranges::find(models, name, &ServedModel::name);
    std::optional<DeviceRates> rates = rates_from_ledger(settings, name);
    const bool decodes = model.max_completion_tokens > 0;
    if (!rates || (decodes && rates->decode_tokens_per_second == 0.0)) {
      tell(
          fmt::format("measuring {}, of which {} knows no rates yet: some seconds, more on a busy "
                      "machine",
                      name, settings.data_directory(config)));
      rates = measure_rates(config, *served);
    }
    models_json.push_back(model_json(name, model, served->price, *rates));
    valid += model.lines;
  }
  const Json report = {
      {"file", file},
      {"lines", {{"total", found.lines}, {"valid", valid}, {"failed", found.lines - valid}}},
      {"errors", found.failures},
      {"ignored_fields", found.ignored_fields},
      {"models", std::move(models_json)}};
  if (settings.json) {
    std::cout << report.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
  } else {
    print(report);
  }
  return kExitDone;
}

}  // namespace

void add_estimate_command(CLI::App* app, Settings* settings, Action* action) {
  CLI::App* command =
      add_command(app, "estimate", "What a job would need: tokens, saving, cost, device time",
                  "batchmill estimate requests.jsonl --model model.gguf");
  auto file = std::make_shared<std::string>();
  command->add_option("FILE", *file, "The job file; - is standard input")->required();
  add_model_flags(command, settings);
  command->callback([=] { *action = [=] { return estimate(*settings, *file); }; });
}

}  // namespace batchmill
