#include "tools/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace batchmill {
namespace {

constexpr std::array<const char*, kNumStepPieces> kPieceNames = {
    "products", "vocabulary", "attention", "rotation", "norms", "activation"};

constexpr int kChartWidth = 64;
constexpr int kChartHeight = 14;
constexpr int kBarWidth = 30;

double number(const Json& value) { return value.get<double>(); }

std::string bar(double share) {
  const auto filled =
      static_cast<std::size_t>(std::lround(std::clamp(share, 0.0, 1.0) * kBarWidth));
  return std::string(filled, '#') + std::string(kBarWidth - filled, '.');
}

}  // namespace

Json config_json(const BenchFlags& flags, const EngineOptions& options,
                 std::int32_t block_size_tokens) {
  return {{"seed", kBenchSeed},
          {"runs", flags.runs},
          {"prefill_prompts", flags.prefill_prompts},
          {"prefill_prompt_tokens", flags.prefill_tokens},
          {"decode_sequences", flags.decode_sequences},
          {"decode_prompt_tokens", flags.decode_prompt_tokens},
          {"decode_tokens", flags.decode_tokens},
          {"max_num_batched_tokens", options.max_num_batched_tokens},
          {"block_size_tokens", block_size_tokens}};
}

Json kv_slots_json(std::int64_t held, std::int64_t empty, std::int32_t block_size_tokens) {
  return {{"held", held},
          {"empty", empty},
          {"block_size_tokens", block_size_tokens},
          {"waste", static_cast<double>(empty) / static_cast<double>(held)}};
}

std::string kv_slots_text(const Json& report) {
  const Json& slots = report.at("kv_slots");
  return fmt::format(
      "KV slots without a token: {:.2f} % of the {} that {} sequences hold (blocks of {})\n",
      100 * number(slots.at("waste")), slots.at("held").get<std::int64_t>(),
      report.at("config").at("decode_sequences").get<int>(),
      slots.at("block_size_tokens").get<int>());
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double tokens_per_second(const std::vector<Measured>& runs) {
  std::vector<double> rates;
  for (const Measured& run : runs) {
    if (!run.took_times) rates.push_back(static_cast<double>(run.tokens) / run.seconds);
  }
  return median(rates);
}

Json case_json(const BenchCase& measured, const Peaks& peaks) {
  std::vector<double> rates, step_seconds;
  Measured total;
  for (const Measured& run : measured.runs) {
    if (run.took_times) continue;
    rates.push_back(static_cast<double>(run.tokens) / run.seconds);
    step_seconds.push_back(run.seconds / static_cast<double>(run.steps));
    total.seconds += run.seconds;
    total.forward_seconds += run.forward_seconds;
    total.steps += run.steps;
    total.kv_tokens += run.kv_tokens;
    total.sums.add(run.sums);
  }
  const Measured& timed = measured.runs.back();
  const auto steps = static_cast<double>(total.steps);
  const auto part = [&](const OperationSums& sums) {
    const double flops = sums.seconds > 0.0 ? sums.operations / sums.seconds : 0.0;
    return Json{{"time_share", sums.seconds / timed.seconds},
                {"gflops", flops / 1e9},
                {"share_of_gemm_peak", flops / peaks.gemm_flops}};
  };
  Json attention = part(timed.sums.of(StepPiece::kAttention));
  const double kv_rate =
      timed.sums.of(StepPiece::kAttention).kv_bytes / timed.sums.of(StepPiece::kAttention).seconds;
  attention["kv_gb_per_second"] = kv_rate / 1e9;
  attention["share_of_read_peak"] = kv_rate / peaks.read_bytes;
  const OperationSums products = timed.sums.gemm();
  Json gemm = part(products);
  if (measured.shapes_flops > 0.0) {
    const OperationSums& layers = timed.sums.of(StepPiece::kProducts);
    gemm["share_of_onednn"] = layers.operations / layers.seconds / measured.shapes_flops;
  }
  Json pieces = Json::object();
  double known_seconds = 0.0;
  for (std::size_t i = 0; i < kNumStepPieces; ++i) {
    pieces[kPieceNames[i]] = timed.sums.pieces[i].seconds / timed.seconds;
    known_seconds += timed.sums.pieces[i].seconds;
  }
  pieces["rest of the model"] = (timed.forward_seconds - known_seconds) / timed.seconds;
  pieces["scheduling and sampling"] = 1.0 - timed.forward_seconds / timed.seconds;

  const double operations =
      (total.sums.gemm().operations + total.sums.of(StepPiece::kAttention).operations) / steps;
  const double bytes =
      measured.weight_bytes + total.kv_tokens / steps * measured.kv_bytes_per_token;
  const double roofline_seconds = std::max(operations / peaks.gemm_flops, bytes / peaks.read_bytes);
  const double seconds = total.seconds / steps;
  return {
      {"tokens", measured.runs.front().tokens},
      {"tokens_per_second", median(rates)},
      {"tokens_per_second_min", *std::min_element(rates.begin(), rates.end())},
      {"tokens_per_second_max", *std::max_element(rates.begin(), rates.end())},
      {"step_seconds", median(step_seconds)},
      {"share_of_gemm_peak", operations / seconds / peaks.gemm_flops},
      {"operations_per_step", operations},
      {"bytes_per_step", bytes},
      {"bound", operations / peaks.gemm_flops > bytes / peaks.read_bytes ? "operations" : "bytes"},
      {"share_of_roofline", roofline_seconds / seconds},
      {"bookkeeping_share", 1.0 - total.forward_seconds / total.seconds},
      {"gemm", std::move(gemm)},
      {"attention", std::move(attention)},
      {"other_time_share",
       1.0 - (products.seconds + timed.sums.of(StepPiece::kAttention).seconds) / timed.seconds},
      {"time_shares", std::move(pieces)}};
}

std::string case_text(const std::string& name, const Json& numbers) {
  const Json& gemm = numbers.at("gemm");
  const Json& attention = numbers.at("attention");
  std::string text = fmt::format(
      "{:<28} {:>7.0f} tokens/s, {:.2f} ms a step, {:.1f} % of the roofline (bound by {})\n", name,
      number(numbers.at("tokens_per_second")), 1e3 * number(numbers.at("step_seconds")),
      100 * number(numbers.at("share_of_roofline")), numbers.at("bound").get<std::string>());
  text += fmt::format("  products at {:.0f} GOP/s", number(gemm.at("gflops")));
  if (gemm.contains("share_of_onednn")) {
    text += fmt::format(", those of layers at {:.1f} % of oneDNN alone",
                        100 * number(gemm.at("share_of_onednn")));
  }
  text += fmt::format("; attention at {:.0f} GOP/s, {:.2f} GB/s of keys and values\n",
                      number(attention.at("gflops")), number(attention.at("kv_gb_per_second")));
  for (const auto& [piece, share] : numbers.at("time_shares").items()) {
    if (number(share) < 0.0005) continue;
    text += fmt::format("  {:<24} {} {:>5.1f} %\n", piece, bar(number(share)), 100 * number(share));
  }
  return text;
}

std::string roofline_text(const Peaks& peaks, const std::vector<std::pair<char, Json>>& cases) {
  const double ridge = peaks.gemm_flops / peaks.read_bytes;
  double least_x = ridge / 8.0;
  double most_x = ridge * 8.0;
  double least_y = peaks.gemm_flops;
  const auto place = [](const Json& numbers) {
    const double operations = number(numbers.at("operations_per_step"));
    return std::pair(operations / number(numbers.at("bytes_per_step")),
                     operations / number(numbers.at("step_seconds")));
  };
  for (const auto& [letter, numbers] : cases) {
    const auto [x, y] = place(numbers);
    least_x = std::min(least_x, x / 1.5);
    most_x = std::max(most_x, x * 1.5);
    least_y = std::min(least_y, y);
  }
  least_y /= 1.5;
  const double most_y = peaks.gemm_flops * 1.3;
  const auto column = [&](double x) {
    return static_cast<int>(
        std::lround(std::log(x / least_x) / std::log(most_x / least_x) * (kChartWidth - 1)));
  };
  const auto row = [&](double y) {
    return static_cast<int>(
        std::lround(std::log(most_y / y) / std::log(most_y / least_y) * (kChartHeight - 1)));
  };
  std::vector<std::string> lines(kChartHeight, std::string(kChartWidth, ' '));
  const auto put = [&](int r, int c, char mark) {
    if (r >= 0 && r < kChartHeight && c >= 0 && c < kChartWidth) {
      lines[static_cast<std::size_t>(r)][static_cast<std::size_t>(c)] = mark;
    }
  };
  for (int c = 0; c < kChartWidth; ++c) {
    const double x =
        least_x * std::pow(most_x / least_x, static_cast<double>(c) / (kChartWidth - 1));
    put(row(std::min(peaks.gemm_flops, x * peaks.read_bytes)), c, x < ridge ? '/' : '_');
  }
  for (const auto& [letter, numbers] : cases) {
    const auto [x, y] = place(numbers);
    put(row(y), column(x), letter);
  }
  std::string text = fmt::format("roofline: {:.0f} GOP/s of products, {:.1f} GB/s of reading\n",
                                 peaks.gemm_flops / 1e9, peaks.read_bytes / 1e9);
  for (int r = 0; r < kChartHeight; ++r) {
    const double y =
        most_y * std::pow(least_y / most_y, static_cast<double>(r) / (kChartHeight - 1));
    const bool labelled = r % 3 == 0 || r == kChartHeight - 1;
    text += labelled ? fmt::format("{:>8.1f} |", y / 1e9) : std::string(8, ' ') + " |";
    text += lines[static_cast<std::size_t>(r)] + "\n";
  }
  text += fmt::format("   GOP/s +{}\n", std::string(kChartWidth, '-'));
  text += fmt::format("          {:<{}}{:>8.1f}\n", fmt::format("{:.2f}", least_x), kChartWidth - 8,
                      most_x);
  text += "          operations per byte:";
  for (const auto& [letter, numbers] : cases) {
    text += fmt::format(" {} {:.2f}", letter, place(numbers).first);
  }
  return text + "\n";
}

}  // namespace batchmill
