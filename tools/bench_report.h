// What `batchmill bench` says about its measurements: numbers for programs (Json), and the roofline
// of the machine with the model's steps in it for people. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "queue/wire.h"
#include "tools/bench_workloads.h"

namespace batchmill {

// The machine's best, measured beside the workloads.
struct Peaks {
  double gemm_flops = 0.0;  // operations per second of oneDNN at the model's shapes
  double read_bytes = 0.0;  // bytes per second
};

struct BenchCase {
  std::string name;
  std::vector<Measured> runs;  // the last took times
  double weight_bytes = 0.0;  // that a step reads
  double kv_bytes_per_token = 0.0;
  // Operations per second that oneDNN alone reaches at this case's products; 0: not measured.
  double shapes_flops = 0.0;
};

// Rates, shares of the peaks and of the roofline, where the time of a step goes.
Json case_json(const BenchCase& measured, const Peaks& peaks);

// Text of case_json, several lines.
std::string case_text(const std::string& name, const Json& numbers);

// A chart: operations per second over operations per byte, both logarithmic, with a mark for each
// case. `cases`: {letter, case_json}.
std::string roofline_text(const Peaks& peaks, const std::vector<std::pair<char, Json>>& cases);

// Parts of the report that all devices have: `held` slots of the KV cache, `empty` of them without
// a token.
Json config_json(const BenchFlags& flags, const EngineOptions& options,
                 std::int32_t block_size_tokens);
Json kv_slots_json(std::int64_t held, std::int64_t empty, std::int32_t block_size_tokens);
std::string kv_slots_text(const Json& report);

double median(std::vector<double> values);
// Of the runs that took no times.
double tokens_per_second(const std::vector<Measured>& runs);

}  // namespace batchmill
