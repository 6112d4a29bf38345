// A model on the CPU backend with stopwatches between engine, model and backend. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/cpu_runner.h"
#include "engine/model.h"
#include "tools/bench_workloads.h"
#include "tools/timing_backend.h"

namespace batchmill {

class CpuBench : public BenchModel {
 public:
  // `model` must outlive it. Throws std::runtime_error, std::bad_alloc.
  CpuBench(const Model& model, const CpuOptions& options, const EngineOptions& engine_options,
           std::int32_t num_blocks);

  const CpuPlan& plan() const { return parts_->plan; }
  std::vector<std::string> gemm_implementations() const {
    return parts_->cpu->gemm_implementations();
  }
  std::string describe() const { return parts_->cpu->describe(); }

 private:
  class TimedRunner;
  struct Parts {
    CpuPlan plan;
    CpuBackend* cpu = nullptr;  // the runner's
    BackendSums sums;  // of a step
    TimedRunner* runner = nullptr;
    std::unique_ptr<ModelRunner> owned_runner;  // until BenchModel has it
  };

  CpuBench(std::unique_ptr<Parts> parts, const Model& model, const EngineOptions& engine_options);
  static std::unique_ptr<Parts> load(const Model& model, const CpuOptions& options,
                                     std::int32_t num_blocks);
  void before_step(const Measured& run) override;
  void after_step(Measured* run) override;

  std::unique_ptr<Parts> parts_;
};

}  // namespace batchmill
