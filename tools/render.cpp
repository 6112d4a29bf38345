#include <fmt/format.h>

#include <chrono>
#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>

#include "actors/json_bridge.h"
#include "engine/chat_template.h"
#include "queue/json_reader.h"
#include "tools/commands.h"
#include "tools/exit_code.h"
#include "tools/json_lines.h"
#include "tools/served_models.h"

namespace batchmill {
namespace {

struct RenderFlags {
  std::string template_file;
  std::string jsonl;
};

// Where templates come from: the option, or the model.
struct TemplateSource {
  std::shared_ptr<const Model> model;  // may be null
  std::optional<ChatTemplate> own;
  std::string bos_token;
  std::string eos_token;

  const ChatTemplate* chat_template() const {
    if (own) return &*own;
    return model != nullptr ? model->chat_template() : nullptr;
  }
};

std::string special_piece(const Tokenizer& tokenizer, TokenId id) {
  return id == kNoToken ? "" : tokenizer.token_bytes(id, /*with_special=*/true);
}

TemplateSource open_source(const Settings& settings, const RenderFlags& flags) {
  TemplateSource source;
  const DaemonConfig config = settings.load();
  if (!config.models.empty()) {
    source.model = open_model(config.models.front().path);
    if (const Tokenizer* tokenizer = source.model->tokenizer()) {
      source.bos_token = special_piece(*tokenizer, tokenizer->vocabulary().bos_token);
      source.eos_token = special_piece(*tokenizer, tokenizer->vocabulary().eos_token);
    }
  }
  if (!flags.template_file.empty()) {
    std::ifstream file(flags.template_file, std::ios::binary);
    std::string text((std::istreambuf_iterator<char>(file)), {});
    if (!file) {
      throw ToolError(kExitUsage, fmt::format("cannot read the template {}", flags.template_file));
    }
    try {
      source.own.emplace(std::move(text), source.bos_token, source.eos_token);
    } catch (const TemplateError& error) {
      throw ToolError(kExitUsage,
                      fmt::format("{}:{}: {}", flags.template_file, error.line(), error.what()));
    }
  }
  return source;
}

// Unix seconds: a number, or a text such as 2025-03-09T14:05:06 (UTC).
std::int64_t parse_now(const Json& now) {
  if (now.is_number()) return now.get<std::int64_t>();
  if (now.is_string()) {
    std::tm parts{};
    const std::string text = now;
    const bool with_t = text.find('T') != std::string::npos;
    if (::strptime(text.c_str(), with_t ? "%Y-%m-%dT%H:%M:%S" : "%Y-%m-%d %H:%M:%S", &parts) !=
        nullptr) {
      return ::timegm(&parts);
    }
  }
  throw TemplateError("runtime", "now must be unix seconds or a text like 2025-03-09T14:05:06");
}

std::string render_object(const TemplateSource& source, Json object) {
  const auto take = [&](const char* key) {
    Json value = object.value(key, Json());
    object.erase(key);
    return value;
  };
  const Json now = take("now");
  const Json own_text = take("template");
  const std::int64_t now_s = now.is_null()
                                 ? std::chrono::duration_cast<std::chrono::seconds>(
                                       std::chrono::system_clock::now().time_since_epoch())
                                       .count()
                                 : parse_now(now);
  std::optional<ChatTemplate> own;
  const ChatTemplate* chat_template = source.chat_template();
  if (own_text.is_string()) {
    own.emplace(own_text.get<std::string>(), source.bos_token, source.eos_token);
    chat_template = &*own;
  }
  if (chat_template == nullptr) throw TemplateError("runtime", "there is no template");
  if (object.contains("messages")) {
    // A conversation sees what a batch line's would.
    for (const char* key : {"tools", "documents"}) {
      if (!object.contains(key)) object[key] = nullptr;
    }
    if (!object.contains("add_generation_prompt")) object["add_generation_prompt"] = true;
  }
  return chat_template->render(to_jinja(object), now_s).text;
}

Json render_answer(const TemplateSource& source, const Json& object) {
  try {
    return {{"text", render_object(source, object)}};
  } catch (const TemplateError& error) {
    return {{"error", {{"kind", error.kind()}, {"message", error.what()}}}};
  }
}

void print(const Json& answer) {
  std::cout << answer.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
}

int render(const Settings& settings, const RenderFlags& flags) {
  const TemplateSource source = open_source(settings, flags);
  int exit_code = kExitDone;
  if (!flags.jsonl.empty()) {
    // A line for each line, whatever it holds, so that both files can be read side by side.
    for_each_json_line(
        flags.jsonl, [&](std::uint64_t, const Json& line) { print(render_answer(source, line)); },
        [](std::uint64_t, const Json&) {
          print({{"error", {{"kind", "invalid_json_line"}, {"message", "not a JSON object"}}}});
        });
  } else {
    const std::string text((std::istreambuf_iterator<char>(std::cin)), {});
    Json object = read_json(text, nullptr).value_or(Json());
    if (object.is_array()) object = Json{{"messages", std::move(object)}};
    if (!object.is_object()) {
      throw ToolError(kExitUsage,
                      "standard input must be a JSON object with messages, or a list of messages");
    }
    const Json answer = render_answer(source, object);
    if (settings.json) {
      print(answer);
    } else if (answer.contains("text")) {
      std::cout << answer["text"].get<std::string>();
    } else {
      std::cerr << answer["error"].dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
    }
    if (answer.contains("error")) exit_code = kExitUsage;
  }
  std::cout << std::flush;
  return exit_code;
}

}  // namespace

void add_render_command(CLI::App* app, Settings* settings, Action* action) {
  CLI::App* command =
      add_command(app, "render", "The prompt text that a chat template makes",
                  "echo '[{\"role\": \"user\", \"content\": \"Hi\"}]' | batchmill render --model "
                  "model.gguf");
  auto flags = std::make_shared<RenderFlags>();
  add_model_flags(command, settings);
  command->add_option("--template", flags->template_file, "A template instead of the model's")
      ->type_name("FILE");
  command
      ->add_option("--jsonl", flags->jsonl,
                   "Read lines of template variables, write {\"text\"} or {\"error\"} lines "
                   "[standard input: one object]")
      ->type_name("F");
  command->callback([=] { *action = [=] { return render(*settings, *flags); }; });
}

}  // namespace batchmill
