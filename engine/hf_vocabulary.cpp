#include "engine/hf_vocabulary.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <stdexcept>

#include "engine/hf_pipeline.h"
#include "engine/json_file.h"
#include "engine/json_place.h"
#include "engine/mapped_file.h"
#include "engine/normalization.h"
#include "engine/sentencepiece.h"
#include "engine/unicode.h"
#include "engine/vocabulary_index.h"

namespace batchmill {
namespace {

// An entry of added_tokens or added_tokens_decoder.
struct AddedToken {
  std::string content;
  bool is_special = false;
  bool strips_left = false;
  bool strips_right = false;
  bool is_normalized = false;
};

TokenId read_id(const JsonPlace& place) {
  const std::int64_t id = place.integer();
  if (id < 0 || static_cast<std::uint64_t>(id) >= VocabularyIndex::kMaxTokens) {
    place.fail(std::to_string(id) + " is no token id");
  }
  return static_cast<TokenId>(id);
}

AddedToken read_added_token(const JsonPlace& place) {
  if (place["single_word"].boolean_or(false)) {
    place.fail("a token that is only found as a single word is not supported");
  }
  return {.content = place["content"].string(),
          .is_special = place["special"].boolean_or(false),
          .strips_left = place["lstrip"].boolean_or(false),
          .strips_right = place["rstrip"].boolean_or(false),
          .is_normalized = place["normalized"].boolean_or(!place["special"].boolean_or(false))};
}

// Fills tokens and kinds; ids that nothing names stay empty and unused.
class EntryTable {
 public:
  explicit EntryTable(Vocabulary* vocabulary) : vocabulary_(vocabulary) {}

  void set(const JsonPlace& place, TokenId id, const std::string& token, TokenKind kind) {
    const auto index = static_cast<std::size_t>(id);
    std::vector<std::string>& tokens = vocabulary_->tokens;
    if (index >= tokens.size()) {
      tokens.resize(index + 1);
      vocabulary_->kinds.resize(index + 1, TokenKind::kUnused);
    }
    if (vocabulary_->kinds[index] != TokenKind::kUnused && tokens[index] != token) {
      place.fail("id " + std::to_string(id) + " is both " + batchmill::quoted(tokens[index]) +
                 " and " + batchmill::quoted(token));
    }
    tokens[index] = token;
    vocabulary_->kinds[index] = kind;
  }

 private:
  Vocabulary* vocabulary_;
};

// Model files have ids in one run; memory must stay in proportion to the file.
void check_largest_id(const JsonPlace& model, TokenId largest, std::size_t num_entries) {
  if (static_cast<std::size_t>(largest) >= num_entries * 2 + 4096) {
    model.fail("id " + std::to_string(largest) + " is far beyond the " +
               std::to_string(num_entries) + " entries");
  }
}

void read_model_entries(const JsonPlace& vocab, std::size_t num_added, EntryTable* table) {
  const auto& entries = vocab.object();
  for (const auto& [token, unused] : entries) {
    const JsonPlace place = vocab[token];
    const TokenId id = read_id(place);
    check_largest_id(place, id, entries.size() + num_added);
    table->set(place, id, token, TokenKind::kNormal);
  }
}

// By id. tokenizer_config.json has the last word, as in the reference.
std::map<TokenId, AddedToken> read_added_tokens(const JsonPlace& tokenizer,
                                                const JsonPlace& config) {
  std::map<TokenId, AddedToken> added;
  for (const JsonPlace& place : tokenizer["added_tokens"].elements()) {
    added[read_id(place["id"])] = read_added_token(place);
  }
  const JsonPlace decoder = config["added_tokens_decoder"];
  if (decoder.is_null()) return added;
  for (const auto& [key, unused] : decoder.object()) {
    const JsonPlace place = decoder[key];
    std::int64_t id = -1;
    if (key.size() < 10 && !key.empty() && key.find_first_not_of("0123456789") == key.npos) {
      id = std::stoll(key);
    }
    if (id < 0 || static_cast<std::size_t>(id) >= VocabularyIndex::kMaxTokens) {
      place.fail("is no token id");
    }
    const AddedToken token = read_added_token(place);
    const auto [entry, is_new] = added.try_emplace(static_cast<TokenId>(id), token);
    if (!is_new && entry->second.content != token.content) {
      place.fail(batchmill::quoted(token.content) + " is " +
                 batchmill::quoted(entry->second.content) + " in tokenizer.json");
    }
    entry->second = token;
  }
  return added;
}

// Whether normalizing a text could keep the token from being found as it is spelled.
bool changes_in_normalizing(const Vocabulary& vocabulary, const std::string& content) {
  if (vocabulary.model == "bert") return true;
  if (vocabulary.model == "gpt2") {
    return vocabulary.normalizes.value_or(false) && !is_surely_nfc(content);
  }
  return vocabulary.space_prefix == SpacePrefix::kAlways || content.find(' ') != std::string::npos;
}

void add_tokens(const JsonPlace& place, const std::map<TokenId, AddedToken>& added,
                EntryTable* table, Vocabulary* vocabulary) {
  for (const auto& [id, token] : added) {
    if (token.is_normalized && changes_in_normalizing(*vocabulary, token.content)) {
      place.fail(batchmill::quoted(token.content) +
                 " is to be found in normalized text, which is not supported");
    }
    table->set(place, id, token.content,
               token.is_special ? TokenKind::kControl : TokenKind::kUserDefined);
    if (token.strips_left) vocabulary->left_stripping.push_back(id);
    if (token.strips_right) vocabulary->right_stripping.push_back(id);
  }
}

void read_merges(const JsonPlace& merges, Vocabulary* vocabulary) {
  vocabulary->merges.reserve(merges.value().size());
  for (const JsonPlace& merge : merges.elements()) {
    if (merge.is_string()) {
      vocabulary->merges.push_back(merge.string());
      continue;
    }
    const std::vector<JsonPlace> parts = merge.elements();
    if (parts.size() != 2) merge.fail("is not a pair of tokens");
    for (const JsonPlace& part : parts) {
      if (part.string().find(' ') != std::string::npos) {
        part.fail("a space inside a token of a merge is not supported");
      }
    }
    vocabulary->merges.push_back(parts[0].string() + " " + parts[1].string());
  }
}

void refuse_if_set(const JsonPlace& place) {
  const nlohmann::json& value = place.value();
  const bool is_set = !value.is_null() && value != "" && value != 0 && value != 0.0;
  if (is_set) place.fail(value.dump().substr(0, 60) + " is not supported");
}

// Sets what the kind of model says, before the entries are read.
void read_kind(const JsonPlace& tokenizer, Vocabulary* vocabulary) {
  const JsonPlace model = tokenizer["model"];
  const std::string type = model["type"].string_or(model["merges"].is_null() ? "" : "BPE");
  if (type == "WordPiece") {
    vocabulary->model = "bert";
    if (model["continuing_subword_prefix"].string_or("##") != "##") {
      refuse_if_set(model["continuing_subword_prefix"]);
    }
    if (!model["max_input_chars_per_word"].is_null()) {
      const std::int64_t max = model["max_input_chars_per_word"].integer();
      if (max < 1 || max > 10'000) model["max_input_chars_per_word"].fail("is not 1 to 10000");
      vocabulary->word_piece.max_word_chars = static_cast<std::int32_t>(max);
    }
    read_wordpiece_steps(tokenizer, vocabulary);
    return;
  }
  if (type != "BPE")
    model["type"].fail(batchmill::quoted(type) + " is not supported (known: BPE, WordPiece)");
  refuse_if_set(model["dropout"]);
  refuse_if_set(model["continuing_subword_prefix"]);
  refuse_if_set(model["end_of_word_suffix"]);
  const bool ignores_merges = model["ignore_merges"].boolean_or(false);
  if (is_byte_level(tokenizer)) {
    vocabulary->model = "gpt2";
    vocabulary->whole_pieces_first = ignores_merges;
    read_byte_level_steps(tokenizer, vocabulary);
    return;
  }
  vocabulary->model = "llama";
  if (ignores_merges) model["ignore_merges"].fail("is not supported without byte-level steps");
  if (!model["byte_fallback"].boolean_or(false)) {
    model["byte_fallback"].fail(
        "BPE that is neither byte-level nor falls back to bytes is not supported");
  }
  read_sentencepiece_steps(tokenizer, vocabulary);
}

TokenId find_token(const Vocabulary& vocabulary, std::string_view token) {
  const auto found = std::ranges::find(vocabulary.tokens, token);
  if (token.empty() || found == vocabulary.tokens.end()) return kNoToken;
  return static_cast<TokenId>(found - vocabulary.tokens.begin());
}

// A token of tokenizer_config.json: a string or an object with its content; "" if there is none.
std::string token_text(const JsonPlace& place) {
  return place.is_object() ? place["content"].string() : place.string_or("");
}

void read_config(const JsonPlace& config, Vocabulary* vocabulary) {
  const auto read = [&](const char* key, TokenId* id) {
    const TokenId found = find_token(*vocabulary, token_text(config[key]));
    if (found != kNoToken) *id = found;
  };
  if (vocabulary->model == "bert") {
    read("cls_token", &vocabulary->bos_token);
    read("sep_token", &vocabulary->eos_token);
  } else {
    read("bos_token", &vocabulary->bos_token);
    read("eos_token", &vocabulary->eos_token);
  }
  read("unk_token", &vocabulary->unknown_token);
  read("pad_token", &vocabulary->padding_token);
  vocabulary->add_bos = config["add_bos_token"].boolean_or(vocabulary->add_bos);
  vocabulary->add_eos = config["add_eos_token"].boolean_or(vocabulary->add_eos);
}

nlohmann::json read_tables(const std::string& path) {
  const MappedFile file(path);
  try {
    return parse_json_table(
        {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(path + ": " + error.what());
  }
}

// tokenizer_config.json beside `path`; null if it is not there.
nlohmann::json read_config_beside(const std::string& path, std::string* config_path) {
  const auto config = std::filesystem::path(path).parent_path() / "tokenizer_config.json";
  *config_path = config.string();
  return std::filesystem::exists(config) ? read_tables(*config_path) : nlohmann::json();
}

}  // namespace

Vocabulary read_tokenizer_json(const std::string& path) {
  const nlohmann::json file = read_tables(path);
  std::string config_path;
  const nlohmann::json config_file = read_config_beside(path, &config_path);
  const JsonPlace tokenizer(&path, &file);
  const JsonPlace config(&config_path, &config_file);
  Vocabulary vocabulary;
  read_kind(tokenizer, &vocabulary);
  EntryTable table(&vocabulary);
  const std::map<TokenId, AddedToken> added = read_added_tokens(tokenizer, config);
  const JsonPlace model = tokenizer["model"];
  read_model_entries(model["vocab"], added.size(), &table);
  if (!added.empty()) {
    check_largest_id(tokenizer["added_tokens"], added.rbegin()->first,
                     vocabulary.tokens.size() + added.size());
  }
  if (vocabulary.model == "llama") {
    for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
      if (byte_of_spelling(vocabulary.tokens[id]) >= 0) vocabulary.kinds[id] = TokenKind::kByte;
    }
  }
  add_tokens(tokenizer["added_tokens"], added, &table, &vocabulary);
  if (vocabulary.model != "bert") read_merges(model["merges"], &vocabulary);
  vocabulary.unknown_token = find_token(vocabulary, model["unk_token"].string_or(""));
  read_post_processor(tokenizer, &vocabulary);
  read_config(config, &vocabulary);
  return vocabulary;
}

Vocabulary read_vocab_txt(const std::string& path) {
  const MappedFile file(path);
  std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  Vocabulary vocabulary;
  vocabulary.model = "bert";
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    vocabulary.tokens.emplace_back(line);
    if (vocabulary.tokens.size() > VocabularyIndex::kMaxTokens) {
      throw std::runtime_error(path + ": too many lines");
    }
  }
  vocabulary.kinds.assign(vocabulary.tokens.size(), TokenKind::kNormal);
  const auto control = [&](std::string_view token) {
    const TokenId id = find_token(vocabulary, token);
    if (id != kNoToken) vocabulary.kinds[static_cast<std::size_t>(id)] = TokenKind::kControl;
    return id;
  };
  vocabulary.bos_token = control("[CLS]");
  vocabulary.eos_token = control("[SEP]");
  vocabulary.unknown_token = control("[UNK]");
  vocabulary.padding_token = control("[PAD]");
  control("[MASK]");
  if (vocabulary.unknown_token == kNoToken) {
    throw std::runtime_error(path + ": has no line [UNK], so it is no vocabulary of WordPiece");
  }
  vocabulary.add_bos = vocabulary.add_eos = true;
  std::string config_path;
  const nlohmann::json config_file = read_config_beside(path, &config_path);
  const JsonPlace config(&config_path, &config_file);
  WordPieceRules& rules = vocabulary.word_piece;
  rules.lowercase = config["do_lower_case"].boolean_or(true);
  rules.strip_accents = config["strip_accents"].boolean_or(rules.lowercase);
  rules.separate_han = config["tokenize_chinese_chars"].boolean_or(true);
  return vocabulary;
}

std::optional<Vocabulary> read_hf_vocabulary(const std::string& folder) {
  const std::filesystem::path root(folder);
  if (std::filesystem::exists(root / "tokenizer.json")) {
    return read_tokenizer_json((root / "tokenizer.json").string());
  }
  if (std::filesystem::exists(root / "vocab.txt")) {
    return read_vocab_txt((root / "vocab.txt").string());
  }
  return std::nullopt;
}

}  // namespace batchmill
