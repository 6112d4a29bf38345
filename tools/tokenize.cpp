#include <fmt/format.h>

#include <charconv>
#include <iostream>
#include <iterator>
#include <optional>
#include <system_error>

#include "engine/tokenizer.h"
#include "engine/tokenizer_file.h"
#include "tools/commands.h"
#include "tools/exit_code.h"
#include "tools/json_lines.h"
#include "tools/table.h"

namespace batchmill {
namespace {

struct TokenizeFlags {
  std::string text;
  bool has_text = false;
  std::string jsonl;
  bool special = false;
  bool decode = false;
};

// A file that holds only a vocabulary will do, so the weights are not looked at.
std::unique_ptr<Tokenizer> open_model_tokenizer(const Settings& settings) {
  const DaemonConfig config = settings.load();
  if (config.models.empty()) {
    throw ToolError(kExitUsage,
                    "no model: give --model PATH or a configuration with a [[model]] table");
  }
  const std::string& path = config.models.front().path;
  try {
    return open_tokenizer(path);
  } catch (const std::system_error& error) {
    throw ToolError(
        error.code() == std::errc::no_such_file_or_directory ? kExitNotFound : kExitUsage,
        fmt::format("cannot open the model {}: {}", path, error.code().message()));
  }
}

std::vector<TokenId> checked_ids(const Json& ids, const Tokenizer& tokenizer,
                                 const std::string& where) {
  if (!ids.is_array()) throw ToolError(kExitUsage, where + "ids must be a list of token ids");
  std::vector<TokenId> checked;
  for (const Json& id : ids) {
    if (!id.is_number_integer() || id < 0 || id >= tokenizer.vocab_size()) {
      throw ToolError(kExitUsage, fmt::format("{}{} is no token id from 0 to {}", where, id.dump(),
                                              tokenizer.vocab_size() - 1));
    }
    checked.push_back(id.get<TokenId>());
  }
  return checked;
}

// "1 2 3", "1,2,3" or "[1, 2, 3]".
Json ids_of_text(const std::string& text) {
  Json ids = Json::array();
  const char* at = text.data();
  const char* end = at + text.size();
  while (at != end) {
    if (std::string_view(" ,[]\t\n\r").find(*at) != std::string_view::npos) {
      ++at;
      continue;
    }
    std::int64_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc()) {
      throw ToolError(kExitUsage, fmt::format("'{}' is no token id", std::string(at, end)));
    }
    ids.push_back(id);
    at = next;
  }
  return ids;
}

void tokenize_lines(const Tokenizer& tokenizer, const TokenizeFlags& flags) {
  for_each_json_line(flags.jsonl, [&](std::uint64_t number, const Json& line) {
    const std::string where = fmt::format("{}:{}: ", flags.jsonl, number);
    Json output;
    if (flags.decode) {
      const auto ids = checked_ids(line.value("ids", Json()), tokenizer, where);
      output["text"] = tokenizer.decode(ids, /*with_special=*/true);
    } else {
      const Json text = line.value("text", Json());
      if (!text.is_string()) throw ToolError(kExitUsage, where + "text must be a string");
      output["ids"] = tokenizer.encode(text.get_ref<const std::string&>(), flags.special);
    }
    std::cout << output.dump() << '\n';
  });
}

// Pieces may be bytes that are no UTF-8 on their own.
std::string printable(std::string_view piece) {
  return Json(std::string(piece)).dump(-1, ' ', false, Json::error_handler_t::replace);
}

void print_ids(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool json) {
  if (json) {
    Json pieces = Json::array();
    for (const TokenId id : ids) pieces.push_back(std::string(tokenizer.piece(id)));
    std::cout << Json{{"ids", ids}, {"pieces", std::move(pieces)}}.dump(
                     -1, ' ', false, Json::error_handler_t::replace)
              << '\n';
    return;
  }
  Table table({"ID", "PIECE"});
  for (const TokenId id : ids) table.add({std::to_string(id), printable(tokenizer.piece(id))});
  std::cout << table.text();
}

int tokenize(const Settings& settings, TokenizeFlags flags) {
  if (flags.has_text && !flags.jsonl.empty()) {
    throw ToolError(kExitUsage, "give TEXT or --jsonl, not both");
  }
  const std::unique_ptr<Tokenizer> tokenizer = open_model_tokenizer(settings);
  if (!flags.jsonl.empty()) {
    tokenize_lines(*tokenizer, flags);
  } else {
    if (!flags.has_text) flags.text.assign(std::istreambuf_iterator<char>(std::cin), {});
    if (flags.decode) {
      const std::string text =
          tokenizer->decode(checked_ids(ids_of_text(flags.text), *tokenizer, ""), true);
      std::cout << (settings.json ? Json{{"text", text}}.dump() : text) << '\n';
    } else {
      print_ids(*tokenizer, tokenizer->encode(flags.text, flags.special), settings.json);
    }
  }
  std::cout << std::flush;
  return kExitDone;
}

}  // namespace

void add_tokenize_command(CLI::App* app, Settings* settings, Action* action) {
  CLI::App* command = add_command(app, "tokenize", "Token ids and pieces of a text",
                                  "batchmill tokenize --model model.gguf 'Hello, world'");
  auto flags = std::make_shared<TokenizeFlags>();
  CLI::Option* text =
      command->add_option("TEXT", flags->text, "The text (with --decode: ids) [standard input]");
  command
      ->add_option("--jsonl", flags->jsonl,
                   "Read {\"text\"} lines, write {\"ids\"} lines (with --decode the other way)")
      ->type_name("F");
  command->add_flag("--special", flags->special, "Special tokens in the text are parsed");
  command->add_flag("--decode", flags->decode, "From ids to text");
  add_model_flags(command, settings);
  command->callback([=] {
    flags->has_text = text->count() != 0;
    *action = [=] { return tokenize(*settings, *flags); };
  });
}

}  // namespace batchmill
