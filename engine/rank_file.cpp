#include "engine/rank_file.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <span>
#include <stdexcept>

#include "engine/byte_alphabet.h"
#include "engine/mapped_file.h"
#include "engine/vocabulary_index.h"

namespace batchmill {
namespace {

struct SpecialToken {
  std::string_view text;
  TokenId id;
};

// What tiktoken knows of an encoding besides its ranks.
struct RankFamily {
  std::size_t num_ranks;
  std::string_view pre_tokenizer;
  std::span<const SpecialToken> special;
};

constexpr SpecialToken kO200k[] = {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}};
constexpr SpecialToken kCl100k[] = {{"<|endoftext|>", 100257},
                                    {"<|fim_prefix|>", 100258},
                                    {"<|fim_middle|>", 100259},
                                    {"<|fim_suffix|>", 100260},
                                    {"<|endofprompt|>", 100276}};
constexpr SpecialToken kP50k[] = {{"<|endoftext|>", 50256}};
constexpr RankFamily kFamilies[] = {
    {199998, "gpt-4o", kO200k},
    {100256, "cl100k", kCl100k},
    {50280, "gpt-2", kP50k},
    {50256, "gpt-2", kP50k},
};

constexpr std::string_view kBase64 =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// Nothing if it is not base64 with its padding.
std::optional<std::string> decode_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  std::string bytes;
  std::uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : text.substr(0, text.size() - padding)) {
    const std::size_t value = kBase64.find(c);
    if (value == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    bytes.push_back(static_cast<char>(bits >> num_bits & 0xFF));
  }
  return bytes;
}

std::optional<TokenId> parse_rank(std::string_view text) {
  TokenId rank = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, rank);
  if (error != std::errc() || at != end || rank < 0) return std::nullopt;
  return rank;
}

std::string_view first_line(std::string_view* text) {
  const std::size_t end = std::min(text->find('\n'), text->size());
  std::string_view line = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

struct Rank {
  std::string bytes;
  TokenId id;
};

std::optional<Rank> parse_line(std::string_view line) {
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  auto bytes = decode_base64(line.substr(0, space));
  const auto id = parse_rank(line.substr(space + 1));
  if (!bytes || !id) return std::nullopt;
  return Rank{std::move(*bytes), *id};
}

// Makes the entry `id`; ids between that no one names stay unused and empty.
void set_token(Vocabulary* vocabulary, TokenId id, std::string token, TokenKind kind) {
  const auto index = static_cast<std::size_t>(id);
  if (index >= vocabulary->tokens.size()) {
    vocabulary->tokens.resize(index + 1);
    vocabulary->kinds.resize(index + 1, TokenKind::kUnused);
  }
  vocabulary->tokens[index] = std::move(token);
  vocabulary->kinds[index] = kind;
}

}  // namespace

bool looks_like_rank_file(std::string_view begin) {
  return parse_line(first_line(&begin)).has_value();
}

Vocabulary parse_ranks(std::string_view text, std::string_view pre_tokenizer,
                       const std::string& name) {
  Vocabulary vocabulary;
  vocabulary.model = "gpt2";
  vocabulary.pre_tokenizer = pre_tokenizer;
  vocabulary.merge_order = MergeOrder::kTokenIds;
  vocabulary.whole_pieces_first = true;
  // Ids have few gaps; memory stays in proportion to the file.
  const std::size_t max_ids = static_cast<std::size_t>(std::ranges::count(text, '\n')) + 1024;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = first_line(&text);
    if (line.empty()) continue;
    const auto fail = [&](const std::string& why) {
      throw std::runtime_error(name + ": line " + std::to_string(number) + ": " + why);
    };
    const auto rank = parse_line(line);
    if (!rank) fail(quoted(line) + " is not a token in base64 and its rank");
    if (static_cast<std::size_t>(rank->id) >= max_ids) {
      fail("the rank " + std::to_string(rank->id) + " is too large");
    }
    const auto index = static_cast<std::size_t>(rank->id);
    if (index < vocabulary.tokens.size() && vocabulary.kinds[index] != TokenKind::kUnused) {
      fail("the rank " + std::to_string(rank->id) + " is there twice");
    }
    set_token(&vocabulary, rank->id, spelling_of_bytes(rank->bytes), TokenKind::kNormal);
  }
  return vocabulary;
}

Vocabulary read_rank_file(const std::string& path) {
  const MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  Vocabulary vocabulary = parse_ranks(text, "", path);
  const auto num_ranks =
      static_cast<std::size_t>(std::ranges::count(vocabulary.kinds, TokenKind::kNormal));
  const auto* family = std::ranges::find(kFamilies, num_ranks, &RankFamily::num_ranks);
  if (family == std::end(kFamilies)) {
    throw std::runtime_error(path + ": " + std::to_string(num_ranks) +
                             " ranks are those of no known encoding (known: o200k, cl100k, p50k, "
                             "r50k)");
  }
  vocabulary.pre_tokenizer = family->pre_tokenizer;
  for (const SpecialToken& token : family->special) {
    const auto index = static_cast<std::size_t>(token.id);
    if (index < vocabulary.kinds.size() && vocabulary.kinds[index] != TokenKind::kUnused) {
      throw std::runtime_error(path + ": the rank " + std::to_string(token.id) + " is that of " +
                               quoted(token.text));
    }
    set_token(&vocabulary, token.id, std::string(token.text), TokenKind::kControl);
  }
  vocabulary.eos_token = family->special.front().id;
  return vocabulary;
}

}  // namespace batchmill
