#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>
#include <iostream>

#include "engine/cpu/cpu_runner.h"
#include "engine/cpu/instruction_set.h"
#include "storage/data_directory.h"
#include "storage/job_store.h"
#include "storage/repair.h"
#include "tools/commands.h"
#include "tools/cpu_devices.h"
#include "tools/devices.h"
#include "tools/exit_code.h"
#include "tools/job_access.h"
#include "tools/printable.h"
#include "tools/served_models.h"

namespace batchmill {
namespace {

using namespace std::chrono_literals;

constexpr auto kDaemonPatience = 10s;

enum class Verdict { kOk, kWarning, kFailed };

struct Check {
  std::string name;
  Verdict verdict = Verdict::kOk;
  std::string detail;
  int exit_code = kExitDone;  // when failed
};

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kWarning:
      return "warning";
    case Verdict::kFailed:
      break;
  }
  return "failed";
}

class Doctor {
 public:
  explicit Doctor(const Settings& settings) : settings_(settings) {}

  void examine(bool rebuild) {
    const auto config = check("config", [&](Check* check) {
      config_ = settings_.load();
      check->detail =
          settings_.config_file.empty() ? "defaults and environment" : settings_.config_file;
      if (const std::string unused = unused_prices(config_); !unused.empty()) {
        check->verdict = Verdict::kWarning;
        check->detail += "; " + unused;
      }
    });
    check_processor();
    if (!config) return;
    check_endpoints();
    check_models();
    if (rebuild) this->rebuild();
    check_store();
  }

  const std::vector<Check>& checks() const { return checks_; }

 private:
  // Recomputes what can be recomputed from lines and results.
  void rebuild() {
    check("rebuild", [&](Check* check) {
      const std::string data = settings_.data_directory(config_);
      if (DataDirectory::holder(data) == 0 && !std::filesystem::exists(data + "/store/CURRENT")) {
        check->detail = "there is no store";
        return;
      }
      const DataDirectory lock(data, DataDirectory::Lock::kExclusive);
      check->detail =
          "ids, order, counters and ledger were made anew; lines that have not finished are "
          "planned anew when a daemon starts";
      std::unique_ptr<JobStore> store;
      try {
        store =
            JobStore::open(lock.store_path(), config_.storage.options, JobStore::Mode::kReadWrite);
      } catch (const StorageError& error) {
        if (error.kind() != StorageError::Kind::kDamaged) throw;
        // A damaged log is read up to the damage; if it is not the log, this fails as well.
        store = open_up_to_damage(lock.store_path(), config_.storage.options);
        check->verdict = Verdict::kWarning;
        check->detail +=
            fmt::format("; what a log held behind its damage is lost: {}", error.what());
      }
      store->rebuild();
    });
  }

  // Runs one check; what it throws is its failure. True unless it failed.
  bool check(const std::string& name, const std::function<void(Check*)>& body) {
    Check check;
    check.name = name;
    const auto failed = [&](int exit_code, const char* what) {
      check.verdict = Verdict::kFailed;
      check.exit_code = exit_code;
      check.detail = what;
    };
    try {
      body(&check);
    } catch (const ToolError& error) {
      failed(error.exit_code(), error.what());
    } catch (const StorageError& error) {
      failed(kExitStore, error.what());
    } catch (const std::exception& error) {
      failed(kExitUsage, error.what());
    }
    checks_.push_back(check);
    return check.verdict != Verdict::kFailed;
  }

  // Whatever would keep a daemon from starting with this configuration.
  void check_endpoints() {
    check("endpoints", [&](Check* check) {
      check->detail = fmt::format(
          "{}", fmt::join(served_endpoints(config_, settings_.data_directory(config_)), ", "));
      daemon_options(config_, settings_.data_directory(config_), {});
    });
  }

  void check_processor() {
    check("processor", [](Check* check) {
      std::string sets;
      for (const InstructionSet set : supported_instruction_sets()) {
        if (!sets.empty()) sets += ", ";
        sets += instruction_set_name(set);
      }
      check->detail = fmt::format("kernels for {}; {} is used", sets,
                                  instruction_set_name(best_instruction_set()));
    });
    check("gpu", [](Check* check) { check->detail = describe_gpus(); });
  }

  void check_models() {
    if (config_.models.empty()) {
      check("model", [](Check* check) {
        check->verdict = Verdict::kWarning;
        check->detail = "none is configured: give --model PATH or a [[model]] table";
      });
    }
    std::vector<std::shared_ptr<const Model>> models;
    std::vector<const ModelConfig*> configs;
    for (const ModelConfigEntry& entry : config_.models) {
      try {
        models.push_back(open_model(entry.path));
        configs.push_back(&models.back()->config());
      } catch (const ToolError&) {  // its own check says it
        models.push_back(nullptr);
        configs.push_back(nullptr);
      }
    }
    for (std::size_t i = 0; i < models.size(); ++i) {
      const ModelConfigEntry& entry = config_.models[i];
      check("model " + entry.name, [&](Check* check) {
        const std::shared_ptr<const Model> model =
            models[i] != nullptr ? models[i] : open_model(entry.path);
        const std::string missing = fmt::format(
            "{}{}", model->tokenizer() == nullptr ? ", no tokenizer: token ids only" : "",
            model->chat_template() == nullptr ? ", no chat template" : "");
        const std::string kind =
            fmt::format("{}, {} layers", model->config().architecture, model->config().num_layers);
        const std::string gpus = describe_gpus_of(config_, configs, i);
        if (!gpus.empty()) {
          check->detail = fmt::format("{}, on {}{}", kind, gpus, missing);
          return;
        }
        const CpuPlan plan = plan_cpu(model->config(), cpu_options(config_, entry));
        // An encoder has no KV cache.
        const bool fits = model->config().encoder ? plan.weight_bytes <= plan.available_bytes
                                                  : plan.num_blocks >= 1;
        if (!fits) {
          throw ToolError(kExitUsage,
                          fmt::format("{} MiB of memory are free, its weights need {}",
                                      plan.available_bytes >> 20, plan.weight_bytes >> 20));
        }
        const std::string cache = model->config().encoder
                                      ? ", an encoder"
                                      : fmt::format(", KV cache {} MiB", plan.kv_cache_bytes >> 20);
        check->detail = fmt::format("{}, on cpu:0, {} MiB as {}{}{}", kind, plan.weight_bytes >> 20,
                                    dtype_name(plan.dtype), cache, missing);
      });
    }
  }

  void check_store() {
    const std::string data = settings_.data_directory(config_);
    const std::string control = DataDirectory::control_endpoint(data);
    check("data directory", [&](Check* check) {
      struct stat status {};
      if (::stat(data.c_str(), &status) != 0) {
        check->detail = data + " does not exist yet";
        return;
      }
      check->detail = data;
      if ((status.st_mode & 077) != 0) {
        check->verdict = Verdict::kWarning;
        check->detail +=
            fmt::format(" has mode {:03o}, others may look into it", status.st_mode & 0777);
      }
    });
    const int holder = DataDirectory::holder(data);
    if (holder != 0) {
      check("daemon", [&](Check* check) {
        JobClient client(control, "batchmill doctor");
        try {
          client.request({{"op", "request"}, {"what", "list"}, {"limit", 1}}, kDaemonPatience);
        } catch (const UnreachableError& error) {
          throw ToolError(kExitStore, fmt::format("process {} holds the store and does not answer "
                                                  "at {}",
                                                  holder, control));
        }
        check->detail = fmt::format("process {} answers at {}", holder, control);
      });
      check_lost_devices(control);
      return;
    }
    const bool whole = check("store", [&](Check* check) {
      try {
        const DataDirectory lock(data, DataDirectory::Lock::kShared);
        const std::unique_ptr<JobStore> store =
            JobStore::open(lock.store_path(), config_.storage.options, JobStore::Mode::kReadOnly);
        const JobStore::CheckReport report = store->check();
        check->detail = fmt::format("{} jobs, {} lines, {} results, {} planned", report.jobs,
                                    report.lines, report.results, report.plan_entries);
        if (!report.problems.empty()) {
          throw ToolError(kExitStore, fmt::format("{} problems, the first: {}",
                                                  report.problems.size(), report.problems.front()));
        }
      } catch (const StorageError& error) {
        if (error.kind() != StorageError::Kind::kMissing) throw;
        check->detail = "none yet";
      }
    });
    if (!whole) check_tables(data);
    check("daemon", [&](Check* check) { check->detail = "none runs on " + data; });
  }

  // What the running daemon had to give up.
  void check_lost_devices(const std::string& control) {
    check("devices", [&](Check* check) {
      JobClient client(control, "batchmill doctor");
      const Json answer =
          client.request({{"op", "request"}, {"what", "devices"}}, kDaemonPatience).header;
      std::string troubles;
      std::string in_use;
      bool lines_wait = false;
      for (const Json& device : answer.at("devices")) {
        const Json& trouble = device.at("trouble");
        std::string& text = trouble.is_null() ? in_use : troubles;
        if (!text.empty()) text += "; ";
        text += trouble.is_null()
                    ? fmt::format("{} runs {}", device.at("device").get<std::string>(),
                                  device.at("model").get<std::string>())
                    : trouble.get<std::string>();
        lines_wait |= device.at("lines_wait").get<bool>();
      }
      if (lines_wait) throw ToolError(kExitStore, troubles);
      check->detail = troubles.empty() ? in_use : troubles;
      if (!troubles.empty()) check->verdict = Verdict::kWarning;
    });
  }

  // Names what is damaged, and says what is not.
  void check_tables(const std::string& data) {
    check("tables", [&](Check* check) {
      const DataDirectory lock(data, DataDirectory::Lock::kShared);
      const TableReport report = batchmill::check_tables(lock.store_path());
      if (report.damaged.empty()) {
        check->detail = fmt::format("all {} table files are whole", report.tables);
        return;
      }
      std::string text = fmt::format("{} of {} table files are whole; damaged:",
                                     report.tables - report.damaged.size(), report.tables);
      bool has_truth = true;
      for (const DamagedTable& table : report.damaged) {
        text += fmt::format(" {} ({})", table.file,
                            table.family.empty() ? table.what : "column family " + table.family);
        has_truth &= table.family == "ids" || table.family == "plan" || table.family == "prompts" ||
                     table.family == "attempts" || table.family == "done" ||
                     table.family == "ledger";
      }
      text += has_truth ? "; --rebuild makes them anew from lines and results"
                        : "; restore the latest backup into a new data directory";
      throw ToolError(kExitStore, text);
    });
  }

  const Settings& settings_;
  DaemonConfig config_;
  std::vector<Check> checks_;
};

int doctor(const Settings& settings, bool rebuild) {
  Doctor doctor(settings);
  doctor.examine(rebuild);
  int exit_code = kExitDone;
  Json list = Json::array();
  for (const Check& check : doctor.checks()) {
    if (exit_code == kExitDone) exit_code = check.exit_code;
    if (settings.json) {
      list.push_back(
          {{"name", check.name}, {"status", name_of(check.verdict)}, {"detail", check.detail}});
    } else {
      std::cout << fmt::format("{:<8} {}: {}\n", name_of(check.verdict), printable(check.name),
                               printable(check.detail));
    }
  }
  if (settings.json) {
    std::cout << Json{{"ok", exit_code == kExitDone}, {"checks", std::move(list)}}.dump(
                     -1, ' ', false, Json::error_handler_t::replace)
              << '\n';
  }
  std::cout << std::flush;
  return exit_code;
}

}  // namespace

void add_doctor_command(CLI::App* app, Settings* settings, Action* action) {
  CLI::App* command = add_command(app, "doctor", "Check configuration, model, store and processor",
                                  "batchmill doctor --model model.gguf");
  auto rebuild = std::make_shared<bool>(false);
  add_model_flags(command, settings);
  command->add_flag("--rebuild", *rebuild,
                    "Also make anew what can be made from lines and results (no daemon may run)");
  command->callback([=] { *action = [=] { return doctor(*settings, *rebuild); }; });
}

}  // namespace batchmill
