#include "tools/settings.h"

#include <sys/resource.h>

#include <algorithm>
#include <csignal>

#include "config/data_directory.h"
#include "config/environment.h"

namespace batchmill {

DaemonConfig Settings::load() const {
  const Environment environment = process_environment();
  DaemonConfig config = load_config(
      config_file.empty() ? std::nullopt : std::optional<std::string>(config_file), environment);
  if (!model.empty()) {
    add_model(config, model, served_model_names);
  } else if (!served_model_names.empty() && !config.models.empty()) {
    std::vector<std::string>& aliases = config.models.front().aliases;
    aliases.insert(aliases.end(), served_model_names.begin(), served_model_names.end());
  }
  const auto apply = [&](const std::string& value, const char* key, const char* flag) {
    if (!value.empty()) set(config, key, value, flag);
  };
  if (!endpoint.empty()) {
    DaemonConfig unused;  // the daemon's own stays
    set(unused, "queue.endpoint", endpoint, "--endpoint");
  }
  apply(key_file, "queue.curve_client_key_file", "--key");
  apply(server_key, "queue.curve_server_public_key", "--server-key");
  apply(device, "model.device", "--device");
  apply(threads, "engine.threads", "--threads");
  apply(dtype, "model.dtype", "--dtype");
  apply(kv_dtype, "model.kv_dtype", "--kv-dtype");
  if (deterministic) set(config, "engine.deterministic", "true", "--deterministic");
  return config;
}

std::string Settings::data_directory(const DaemonConfig& config) const {
  return batchmill::data_directory(data, config, process_environment());
}

void add_common_flags(CLI::App* app, Settings* settings) {
  const char* group = "Common";
  app->add_option("--config", settings->config_file, "Configuration file (TOML)")
      ->type_name("FILE")
      ->group(group);
  app->add_option("--data", settings->data,
                  "Data directory [$BATCHMILL_DATA, $XDG_STATE_HOME/batchmill, "
                  "~/.local/state/batchmill]")
      ->type_name("DIR")
      ->group(group);
  app->add_option("--device", settings->device, "auto, cpu, cuda:N [auto]")
      ->type_name("NAME")
      ->group(group);
  app->add_option("--threads", settings->threads, "Compute threads [every core allowed]")
      ->type_name("N")
      ->group(group);
  app->add_option("--dtype", settings->dtype, "Weights and products: auto, f32, bf16, int8 [auto]")
      ->type_name("TYPE")
      ->group(group);
  app->add_option("--kv-dtype", settings->kv_dtype, "KV cache: auto, f32, bf16, int8, fp8 [auto]")
      ->type_name("TYPE")
      ->group(group);
  app->add_flag("--deterministic", settings->deterministic,
                "Lines with a seed or temperature 0 get the same answer whatever shares a step")
      ->group(group);
}

void add_model_flags(CLI::App* app, Settings* settings) {
  app->add_option("--model", settings->model,
                  "Model: a GGUF file or a Hugging Face folder; lines name it `default`")
      ->type_name("PATH");
  app->add_option("--served-model-name", settings->served_model_names,
                  "Further names that lines may use for the model; '*': any name")
      ->type_name("NAME")
      ->expected(1, CLI::detail::expected_max_vector_size);
}

void prepare_daemon_process() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file over its limit is an error of the write
  // A core would hold prompts, answers and keys. 1 byte keeps also a pipe from getting it; who
  // needs one raises the limit of the running process (prlimit).
  rlimit core{};
  if (::getrlimit(RLIMIT_CORE, &core) == 0) {
    core.rlim_cur = std::min<rlim_t>(core.rlim_max, 1);
    ::setrlimit(RLIMIT_CORE, &core);
  }
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
}

}  // namespace batchmill
