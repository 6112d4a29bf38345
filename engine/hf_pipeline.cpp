#include "engine/hf_pipeline.h"

#include <algorithm>
#include <optional>

#include "engine/deepseek_pieces.h"
#include "engine/sentencepiece.h"
#include "engine/vocabulary_index.h"

namespace batchmill {
namespace {

using Steps = std::vector<std::string>;

// Line breaks stand in some files as themselves and in others escaped.
std::string with_escaped_newlines(std::string_view expression) {
  std::string escaped;
  for (const char c : expression) {
    if (c == '\r') {
      escaped += "\\r";
    } else if (c == '\n') {
      escaped += "\\n";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string describe_pattern(const JsonPlace& pattern) {
  if (pattern["Regex"].is_string()) {
    return "/" + with_escaped_newlines(pattern["Regex"].string()) + "/";
  }
  if (pattern["String"].is_string()) return "\"" + pattern["String"].string() + "\"";
  pattern.fail("is neither a String nor a Regex");
}

std::string describe_metaspace(const JsonPlace& step) {
  std::string scheme = step["add_prefix_space"].boolean_or(true) ? "always" : "never";
  scheme = step["prepend_scheme"].string_or(scheme);
  const std::string replacement = step["replacement"].string_or(kSpaceMark);
  return "Metaspace " + scheme + (step["split"].boolean_or(true) ? " split" : "") +
         (replacement == kSpaceMark ? "" : " by \"" + replacement + "\"");
}

// A step as text: its type and what changes its meaning. What only concerns offsets is left out.
std::string describe(const JsonPlace& step) {
  const std::string& type = step["type"].string();
  if (type == "Split") {
    std::string behavior = step["behavior"].string_or("");
    const bool invert = step["invert"].boolean_or(false);
    // Where the expression matches everywhere, as all known ones so written do, dropping what lies
    // between matches drops nothing.
    const bool drops_rest = behavior == "Removed" && invert;
    if (drops_rest) behavior = "Isolated";
    return "Split " + behavior + (invert && !drops_rest ? " inverted " : " ") +
           describe_pattern(step["pattern"]);
  }
  if (type == "Digits") {
    return step["individual_digits"].boolean_or(false) ? "Digits individual" : type;
  }
  if (type == "ByteLevel") {
    return type + (step["add_prefix_space"].boolean_or(true) ? " prefix" : "") +
           (step["use_regex"].boolean_or(true) ? " regex" : "");
  }
  if (type == "Metaspace") return describe_metaspace(step);
  if (type == "Prepend") return "Prepend \"" + step["prepend"].string_or("") + "\"";
  if (type == "Replace") {
    return "Replace " + describe_pattern(step["pattern"]) + " \"" + step["content"].string_or("") +
           "\"";
  }
  if (type == "Strip" && !step["content"].is_null()) {
    return "Strip \"" + step["content"].string() + "\" " + step["start"].value().dump() + " " +
           step["stop"].value().dump();
  }
  return type;
}

// The steps of a normalizer, pre-tokenizer or decoder; sequences are walked, at most this deep.
constexpr int kMaxDepth = 8;

void add_steps(const JsonPlace& step, std::string_view list_key, int depth, Steps* steps) {
  if (step.is_null()) return;
  if (step["type"].string() != "Sequence") {
    steps->push_back(describe(step));
    return;
  }
  if (depth == kMaxDepth) step.fail("nests too deep");
  for (const JsonPlace& part : step[list_key].elements()) {
    add_steps(part, list_key, depth + 1, steps);
  }
}

Steps steps_of(const JsonPlace& tokenizer, std::string_view key, std::string_view list_key) {
  Steps steps;
  add_steps(tokenizer[key], list_key, 0, &steps);
  return steps;
}

Steps normalizer_steps(const JsonPlace& tokenizer) {
  return steps_of(tokenizer, "normalizer", "normalizers");
}
Steps pre_tokenizer_steps(const JsonPlace& tokenizer) {
  return steps_of(tokenizer, "pre_tokenizer", "pretokenizers");
}
Steps decoder_steps(const JsonPlace& tokenizer) {
  return steps_of(tokenizer, "decoder", "decoders");
}

[[noreturn]] void refuse(const JsonPlace& place, const Steps& steps) {
  std::string found;
  for (const std::string& step : steps) {
    if (!found.empty()) found += ", then ";
    found += batchmill::quoted(step);
  }
  place.fail((found.empty() ? "nothing" : found) + " is not supported");
}

std::string isolated(std::string_view expression) {
  return "Split Isolated /" + std::string(expression) + "/";
}

struct KnownPreTokenizer {
  std::string_view name;
  Steps steps;
};

const std::vector<KnownPreTokenizer>& known_pre_tokenizers() {
  static const std::vector<KnownPreTokenizer> known = [] {
    const std::string contractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
    const std::string words = "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|";
    const std::string rest = "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    const std::string upper = "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]";
    const std::string lower = "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]";
    const std::string lead = "[^\\r\\n\\p{L}\\p{N}]?";
    const std::string bytes = "ByteLevel";
    return std::vector<KnownPreTokenizer>{
        {"gpt-2", {"ByteLevel regex"}},
        {"smollm", {"Digits individual", "ByteLevel regex"}},
        {"dbrx", {isolated(contractions + words + "\\p{N}{1,3}" + rest), bytes}},
        {"qwen2", {isolated(contractions + words + "\\p{N}" + rest), bytes}},
        {"cl100k",
         {isolated("'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+"
                   "| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)|\\s"),
          bytes}},
        {"gpt-4o",
         {isolated(lead + upper + "*" + lower + "+" + contractions + "?|" + lead + upper + "+" +
                   lower + "*" + contractions +
                   "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*"
                   "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"),
          bytes}},
        {"deepseek-llm",
         {isolated("[\\r\\n]"), isolated(deepseek_llm_letters()),
          isolated("\\s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]+"),
          isolated("\\s+$"), isolated("[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+"),
          "Digits individual", bytes}},
        {"deepseek-v3",
         {isolated("\\p{N}{1,3}"), isolated("[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+"),
          isolated("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
                   "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*"
                   "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"),
          bytes}},
    };
  }();
  return known;
}

// The token that a template puts before (`at_end`: after) a single text, if there is one.
std::optional<TokenId> template_token(const JsonPlace& processor, bool at_end) {
  std::vector<JsonPlace> items = processor["single"].elements();
  if (at_end) std::ranges::reverse(items);
  std::optional<TokenId> found;
  for (const JsonPlace& item : items) {
    const JsonPlace token = item["SpecialToken"];
    if (token.is_null()) break;
    if (found) item.fail("a second special token on one side of the text is not supported");
    const std::vector<JsonPlace> ids =
        processor["special_tokens"][token["id"].string()]["ids"].elements();
    if (ids.size() != 1) token.fail("does not stand for one token");
    const std::int64_t id = ids[0].integer();
    if (id < 0 || static_cast<std::uint64_t>(id) >= VocabularyIndex::kMaxTokens) {
      ids[0].fail("is no token id");
    }
    found = static_cast<TokenId>(id);
  }
  return found;
}

}  // namespace

bool is_byte_level(const JsonPlace& tokenizer) {
  const Steps steps = pre_tokenizer_steps(tokenizer);
  return !steps.empty() && steps.back().starts_with("ByteLevel");
}

void read_byte_level_steps(const JsonPlace& tokenizer, Vocabulary* vocabulary) {
  const Steps normalizer = normalizer_steps(tokenizer);
  if (!normalizer.empty() && normalizer != Steps{"NFC"}) {
    refuse(tokenizer["normalizer"], normalizer);
  }
  vocabulary->normalizes = !normalizer.empty();
  const Steps steps = pre_tokenizer_steps(tokenizer);
  const auto& known = known_pre_tokenizers();
  const auto found = std::ranges::find(known, steps, &KnownPreTokenizer::steps);
  if (found == known.end()) refuse(tokenizer["pre_tokenizer"], steps);
  vocabulary->pre_tokenizer = found->name;
  const Steps decoder = decoder_steps(tokenizer);
  if (decoder.size() != 1 || !decoder[0].starts_with("ByteLevel")) {
    refuse(tokenizer["decoder"], decoder);
  }
}

void read_sentencepiece_steps(const JsonPlace& tokenizer, Vocabulary* vocabulary) {
  const std::string mark(kSpaceMark);
  const std::string to_mark = "Replace \" \" \"" + mark + "\"";
  const Steps normalizer = normalizer_steps(tokenizer);
  const Steps pre_tokenizer = pre_tokenizer_steps(tokenizer);
  if (normalizer.empty()) {
    if (pre_tokenizer == Steps{"Metaspace first"}) {
      vocabulary->space_prefix = SpacePrefix::kIfMissingAtStart;
    } else if (pre_tokenizer == Steps{"Metaspace always"}) {
      vocabulary->space_prefix = SpacePrefix::kIfMissing;
    } else if (pre_tokenizer == Steps{"Metaspace never"}) {
      vocabulary->space_prefix = SpacePrefix::kNone;
    } else {
      refuse(tokenizer["pre_tokenizer"], pre_tokenizer);
    }
  } else {
    if (normalizer == Steps{to_mark}) {
      vocabulary->space_prefix = SpacePrefix::kNone;
    } else if (normalizer == Steps{"Prepend \"" + mark + "\"", to_mark}) {
      vocabulary->space_prefix = SpacePrefix::kAlways;
    } else {
      refuse(tokenizer["normalizer"], normalizer);
    }
    // The normalizer leaves no space that this could split at.
    const Steps splits_nothing = {"Split MergedWithPrevious \" \""};
    if (!pre_tokenizer.empty() && pre_tokenizer != splits_nothing) {
      refuse(tokenizer["pre_tokenizer"], pre_tokenizer);
    }
  }
  Steps expected = {"Replace \"" + mark + "\" \" \"", "ByteFallback", "Fuse"};
  if (vocabulary->space_prefix != SpacePrefix::kNone) expected.push_back("Strip \" \" 1 0");
  const Steps decoder = decoder_steps(tokenizer);
  if (decoder != expected) refuse(tokenizer["decoder"], decoder);
}

void read_wordpiece_steps(const JsonPlace& tokenizer, Vocabulary* vocabulary) {
  const JsonPlace normalizer = tokenizer["normalizer"];
  const Steps steps = normalizer_steps(tokenizer);
  if (steps != Steps{"BertNormalizer"}) refuse(normalizer, steps);
  WordPieceRules& rules = vocabulary->word_piece;
  rules.clean_text = normalizer["clean_text"].boolean_or(true);
  rules.separate_han = normalizer["handle_chinese_chars"].boolean_or(true);
  rules.lowercase = normalizer["lowercase"].boolean_or(true);
  rules.strip_accents = normalizer["strip_accents"].boolean_or(rules.lowercase);
  const Steps pre_tokenizer = pre_tokenizer_steps(tokenizer);
  if (pre_tokenizer != Steps{"BertPreTokenizer"}) {
    refuse(tokenizer["pre_tokenizer"], pre_tokenizer);
  }
  const JsonPlace decoder = tokenizer["decoder"];
  const Steps decoder_list = decoder_steps(tokenizer);
  if (decoder_list != Steps{"WordPiece"} || decoder["prefix"].string_or("##") != "##") {
    refuse(decoder, decoder_list);
  }
  rules.clean_up_spaces = decoder["cleanup"].boolean_or(true);
}

void read_post_processor(const JsonPlace& tokenizer, Vocabulary* vocabulary) {
  std::vector<JsonPlace> processors = {tokenizer["post_processor"]};
  if (processors[0]["type"].string_or("") == "Sequence") {
    processors = processors[0]["processors"].elements();
  }
  for (const JsonPlace& processor : processors) {
    if (processor["type"].string_or("") != "TemplateProcessing") continue;
    if (const auto first = template_token(processor, false)) {
      vocabulary->bos_token = *first;
      vocabulary->add_bos = true;
    }
    if (const auto last = template_token(processor, true)) {
      vocabulary->eos_token = *last;
      vocabulary->add_eos = true;
    }
  }
}

}  // namespace batchmill
