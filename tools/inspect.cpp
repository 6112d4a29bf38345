#include <fmt/format.h>

#include <iostream>
#include <map>

#include "engine/cpu/cpu_runner.h"
#include "queue/wire.h"
#include "tools/commands.h"
#include "tools/cpu_devices.h"
#include "tools/exit_code.h"
#include "tools/served_models.h"

namespace batchmill {
namespace {

Json tensor_types(const TensorSource& tensors, std::uint64_t* bytes) {
  std::map<std::string, std::uint64_t> counts;
  *bytes = 0;
  for (const TensorInfo& tensor : tensors.tensors()) {
    ++counts[tensor.type];
    *bytes += tensor.bytes;
  }
  return counts;
}

Json model_json(const Model& model, const CpuPlan& plan) {
  const ModelConfig& config = model.config();
  std::uint64_t tensor_bytes = 0;
  Json types = tensor_types(model.tensors(), &tensor_bytes);
  Json vocabulary = nullptr;
  if (const Tokenizer* tokenizer = model.tokenizer()) {
    const Vocabulary& words = tokenizer->vocabulary();
    const auto piece = [&](TokenId id) {
      return id == kNoToken ? Json() : Json(std::string(tokenizer->piece(id)));
    };
    vocabulary = {{"size", tokenizer->vocab_size()},
                  {"model", words.model},
                  {"pre_tokenizer", words.pre_tokenizer},
                  {"bos_token", piece(words.bos_token)},
                  {"eos_token", piece(words.eos_token)}};
  }
  const std::int64_t fits =
      plan.kv_bytes_per_token == 0 ? 0 : plan.kv_cache_bytes / plan.kv_bytes_per_token;
  return {{"path", model.path()},
          {"architecture", config.architecture},
          {"name", config.name},
          {"fingerprint", model.fingerprint()},
          {"shape",
           {{"layers", config.num_layers},
            {"hidden_size", config.hidden_size},
            {"intermediate_size", config.intermediate_size},
            {"heads", config.num_heads},
            {"kv_heads", config.num_kv_heads},
            {"head_dim", config.head_dim},
            {"vocab_size", config.vocab_size},
            {"max_context_tokens", config.max_context_tokens},
            {"rope_theta", config.ropes.empty() ? Json() : Json(config.ropes.front().theta)},
            {"tied_embeddings", config.tied_embeddings}}},
          {"tensors", {{"bytes", tensor_bytes}, {"types", std::move(types)}}},
          {"vocabulary", std::move(vocabulary)},
          {"eos_token_ids", model.eos_token_ids()},
          {"chat_template",
           model.chat_template() != nullptr ? Json(model.chat_template()->source()) : Json()},
          {"device",
           {{"name", "cpu"},
            {"dtype", dtype_name(plan.dtype)},
            {"kv_dtype", dtype_name(plan.kv_dtype)},
            {"threads", plan.threads},
            {"weight_bytes", plan.weight_bytes},
            {"available_bytes", plan.available_bytes},
            {"kv_bytes_per_token", plan.kv_bytes_per_token},
            {"kv_cache_bytes", plan.kv_cache_bytes},
            {"kv_cache_tokens", fits},
            {"fits", plan.num_blocks > 0}}}};
}

std::string mib(const Json& bytes) {
  return fmt::format("{:.1f} MiB", bytes.get<double>() / (1 << 20));
}

void print(const Json& model) {
  const Json& shape = model.at("shape");
  const Json& device = model.at("device");
  const auto line = [](const char* label, const std::string& value) {
    std::cout << fmt::format("{:<14} {}\n", label, value);
  };
  line("model", fmt::format("{} ({})", model.at("name").get<std::string>(),
                            model.at("architecture").get<std::string>()));
  line("fingerprint", model.at("fingerprint"));
  line("layers", shape.at("layers").dump());
  line("hidden size", fmt::format("{}, intermediate {}", shape.at("hidden_size").dump(),
                                  shape.at("intermediate_size").dump()));
  line("heads", fmt::format("{} of {}, {} for keys and values", shape.at("heads").dump(),
                            shape.at("head_dim").dump(), shape.at("kv_heads").dump()));
  line("context", fmt::format("{} tokens", shape.at("max_context_tokens").dump()));
  const Json& vocabulary = model.at("vocabulary");
  line("vocabulary", vocabulary.is_null()
                         ? "none in the file"
                         : fmt::format("{} tokens, {} / {}", vocabulary.at("size").dump(),
                                       vocabulary.at("model").get<std::string>(),
                                       vocabulary.at("pre_tokenizer").get<std::string>()));
  line("chat template",
       model.at("chat_template").is_null()
           ? "none in the file"
           : fmt::format("{} bytes", model.at("chat_template").get<std::string>().size()));
  line("file", fmt::format("{} of tensors: {}", mib(model.at("tensors").at("bytes")),
                           model.at("tensors").at("types").dump()));
  line("weights", fmt::format("{} as {}", mib(device.at("weight_bytes")),
                              device.at("dtype").get<std::string>()));
  line("KV cache", fmt::format("{} bytes a token as {}", device.at("kv_bytes_per_token").dump(),
                               device.at("kv_dtype").get<std::string>()));
  line("this machine",
       device.at("fits").get<bool>()
           ? fmt::format("{} free: a KV cache of {}, {} tokens", mib(device.at("available_bytes")),
                         mib(device.at("kv_cache_bytes")), device.at("kv_cache_tokens").dump())
           : fmt::format("{} free: the model does not fit", mib(device.at("available_bytes"))));
}

}  // namespace

void add_inspect_command(CLI::App* app, Settings* settings, Action* action) {
  CLI::App* command = add_command(app, "inspect", "What a model is, and what of it fits here",
                                  "batchmill inspect model.gguf");
  auto path = std::make_shared<std::string>();
  command->add_option("MODEL", *path, "The model file")->required();
  command->callback([=] {
    *action = [=] {
      settings->model = *path;
      const DaemonConfig config = settings->load();
      const std::shared_ptr<const Model> model = open_model(*path);
      const CpuPlan plan = plan_cpu(model->config(), cpu_options(config, config.models.front()));
      const Json described = model_json(*model, plan);
      if (settings->json) {
        std::cout << described.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
      } else {
        print(described);
      }
      return int{kExitDone};
    };
  });
}

}  // namespace batchmill
