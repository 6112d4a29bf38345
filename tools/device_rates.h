// How fast a model runs here, as far as this machine knows: from the ledger of earlier jobs, else
// by running the model for a moment.
#pragma once

#include <optional>
#include <string>

#include "actors/daemon.h"
#include "config/daemon_config.h"
#include "tools/settings.h"

namespace batchmill {

struct DeviceRates {
  double prefill_tokens_per_second = 0.0;
  double decode_tokens_per_second = 0.0;  // 0: an encoder
  std::string source;  // "earlier jobs" or "a measurement now"
};

// Absent: the data directory knows of too little device time of that model.
std::optional<DeviceRates> rates_from_ledger(const Settings& settings, const std::string& model);

// Loads the model's weights and runs prompts of random tokens. Throws ToolError (kExitUsage) if
// they do not fit.
DeviceRates measure_rates(const DaemonConfig& config, const ServedModel& served);

}  // namespace batchmill
