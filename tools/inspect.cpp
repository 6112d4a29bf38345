#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <string>

#include "engine/cpu/cpu_runner.h"
#include "tools/commands.h"
#include "tools/cpu_devices.h"
#include "tools/exit_code.h"
#include "tools/model_description.h"
#include "tools/served_models.h"

namespace batchmill {
namespace {

void line(const char* label, const std::string& value) {
  std::cout << fmt::format("{:<14} {}\n", label, value);
}

std::string bytes_text(const Json& bytes) {
  const double mib = bytes.get<double>() / (1 << 20);
  return mib < 10240 ? fmt::format("{:.1f} MiB", mib) : fmt::format("{:.1f} GiB", mib / 1024);
}

// A number without needless zeros.
std::string number(const Json& value) {
  return value.is_number_float() ? fmt::format("{:g}", value.get<double>()) : value.dump();
}

std::string text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// "8.03 B", "134.5 M"
std::string parameters(const Json& count) {
  const auto value = count.get<double>();
  if (value >= 1e9) return fmt::format("{:.2f} B", value / 1e9);
  if (value >= 1e6) return fmt::format("{:.1f} M", value / 1e6);
  return fmt::format("{:.1f} k", value / 1e3);
}

// "22 sliding (512 tokens), 4 full": the kinds with what is not the usual about them.
std::string layers(const Json& model) {
  std::string out;
  const Json& kinds = model.at("layer_kinds");
  for (const Json& kind : kinds) {
    if (!out.empty()) out += ", ";
    out += fmt::format("{} {}", kind.at("layers").size(), text(kind.at("attention")));
    if (kind.contains("window_tokens")) {
      out += fmt::format(" ({} tokens)", kind.at("window_tokens").dump());
    }
    if (kind.at("mlp") == "experts") out += " with experts";
    if (model.at("ropes").size() > 1) out += fmt::format(", RoPE {}", kind.at("rope").dump());
  }
  return out;
}

// "base 500000, llama3: factor 8, original_context_tokens 8192, …"
std::string rope(const Json& values) {
  std::string out = "base " + fmt::format("{:.0f}", values.at("theta").get<double>());
  if (values.at("scaling") == "none") return out;
  out += ", " + text(values.at("scaling"));
  char separator = ':';
  for (const auto& [key, value] : values.items()) {
    if (key == "theta" || key == "scaling") continue;
    out += fmt::format("{} {} {}", separator, key, number(value));
    separator = ',';
  }
  return out;
}

void print_shapes(const Json& model) {
  const bool sparse = model.at("parameters") != model.at("active_parameters");
  line("parameters", parameters(model.at("parameters")) +
                         (sparse ? fmt::format(", {} of them per token",
                                               parameters(model.at("active_parameters")))
                                 : ""));
  const Json& shape = model.at("shape");
  line("layers", layers(model));
  line("hidden size",
       fmt::format("{}, intermediate {}, {}{}", shape.at("hidden_size").dump(),
                   shape.at("intermediate_size").dump(), text(shape.at("activation")),
                   shape.at("gated_mlp").get<bool>() ? " gated" : ""));
  line("heads", fmt::format("{} of {}, {} for keys and values", shape.at("heads").dump(),
                            shape.at("head_dim").dump(), shape.at("kv_heads").dump()));
  for (const char* part : {"latent_attention", "experts"}) {
    if (!shape.contains(part)) continue;
    std::string values;
    for (const auto& [key, value] : shape.at(part).items()) {
      values += fmt::format("{}{} {}", values.empty() ? "" : ", ", key, value.dump());
    }
    line(part[0] == 'l' ? "latent" : "experts", values);
  }
  line("positions", text(shape.at("positions")));
  int index = 0;
  for (const Json& values : model.at("ropes")) {
    line(model.at("ropes").size() > 1 ? fmt::format("RoPE {}", index++).c_str() : "RoPE",
         rope(values));
  }
  if (const auto factors = model.value("rope_frequency_factors", Json()); !factors.is_null()) {
    line("", fmt::format("frequencies divided by {} to {} ({})", number(factors.at("smallest")),
                         number(factors.at("largest")), text(factors.at("tensor"))));
  }
  line("context", fmt::format("{} tokens", shape.at("max_context_tokens").dump()));
}

void print_device(const Json& device) {
  line("weights",
       fmt::format("{} as {}", bytes_text(device.at("weight_bytes")), text(device.at("dtype"))));
  const bool has_cache = device.at("kv_bytes_per_token") != 0;  // an encoder has none
  line("KV cache",
       has_cache
           ? fmt::format("{} bytes a token as {} = {}", device.at("kv_bytes_per_token").dump(),
                         text(device.at("kv_dtype")), text(device.at("kv_bytes_formula")))
           : "none: an encoder keeps nothing");
  const std::string available = bytes_text(device.at("available_bytes"));
  if (!device.at("fits").get<bool>()) {
    line("this machine", fmt::format("{} available: the model does not fit", available));
    return;
  }
  if (!has_cache) {
    line("this machine", fmt::format("{} available: the weights fit", available));
    return;
  }
  line("this machine",
       fmt::format("{} available, of which a KV cache takes {} by default ({} tokens)", available,
                   bytes_text(device.at("kv_cache_bytes")), device.at("kv_cache_tokens").dump()));
  line("", fmt::format("it may take {} ([engine] kv_cache_bytes), four fifths of what the weights "
                       "leave; there is room for",
                       bytes_text(device.at("cache_room_bytes"))));
  for (const Json& row : device.at("context_fits")) {
    line("", fmt::format("{:>9} tokens × {} sequences", row.at("context_tokens").dump(),
                         row.at("sequences").dump()));
  }
}

void print(const Json& model) {
  line("model", fmt::format("{} ({})", text(model.at("name")), text(model.at("architecture"))));
  const bool supported = model.at("supported").get<bool>();
  line(supported ? "fingerprint" : "cannot run",
       text(model.at(supported ? "fingerprint" : "reason")));
  if (model.contains("shape")) print_shapes(model);
  if (model.contains("vocabulary")) {
    const Json& vocabulary = model.at("vocabulary");
    const std::string rules = vocabulary.is_null() || !vocabulary.at("pre_tokenizer").is_string()
                                  ? ""
                                  : vocabulary.at("pre_tokenizer").get<std::string>();
    line("vocabulary",
         vocabulary.is_null()
             ? "none in the file"
             : fmt::format("{} tokens, {}{}", vocabulary.at("size").dump(),
                           text(vocabulary.at("model")), rules.empty() ? "" : " / " + rules));
    const Json& chat_template = model.at("chat_template");
    line("chat template", chat_template.is_null()
                              ? "none in the file"
                              : fmt::format("{} bytes", text(chat_template).size()));
  }
  std::string types;
  for (const auto& [type, count] : model.at("tensors").at("types").items()) {
    types += fmt::format("{}{} {}", types.empty() ? "" : ", ", count.dump(), type);
  }
  line("file",
       fmt::format("{} of tensors: {}", bytes_text(model.at("tensors").at("bytes")), types));
  if (model.contains("device")) print_device(model.at("device"));
  if (!model.contains("metadata")) return;
  for (const auto& [key, value] : model.at("metadata").items()) {
    std::cout << fmt::format("  {} = {}\n", key, text(value));
  }
}

void write(const Json& model, bool json) {
  if (json) {
    std::cout << model.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
  } else {
    print(model);
  }
}

}  // namespace

void add_inspect_command(CLI::App* app, Settings* settings, Action* action) {
  CLI::App* command = add_command(app, "inspect", "What a model is, and what of it fits here",
                                  "batchmill inspect model.gguf");
  auto path = std::make_shared<std::string>();
  command->add_option("MODEL", *path, "The model: a GGUF file or a Hugging Face folder")
      ->required();
  command->callback([=] {
    *action = [=] {
      settings->model = *path;
      const DaemonConfig config = settings->load();
      const CpuOptions options = cpu_options(config, config.models.front());
      std::shared_ptr<const Model> model;
      try {
        model = open_model(*path);
      } catch (const ToolError& error) {
        const Json refused = describe_refused_model(*path, error.what(), options);
        if (refused.is_null()) throw;
        write(refused, settings->json);
        throw ToolError(kExitUsage, error.what());
      }
      const CpuPlan plan = plan_cpu(model->config(), options);
      write(describe_model(*model, plan, options.block_size_tokens), settings->json);
      return int{kExitDone};
    };
  });
}

}  // namespace batchmill
