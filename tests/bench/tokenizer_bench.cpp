// How fast a model's tokenizer is on this machine, on one thread, as one JSON line:
//   engine_tokenizer_bench MODEL TEXT_FILE...
// MODEL is what open_tokenizer() takes.
// The files are joined and repeated to 8 MB, then encoded in requests of about 4,000 bytes.
#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <exception>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/tokenizer.h"
#include "engine/tokenizer_file.h"
#include "engine/unicode.h"

namespace batchmill {
namespace {

constexpr std::size_t kTextBytes = 8'000'000;
constexpr std::size_t kRequestBytes = 4000;
constexpr int kNumRuns = 5;

std::string read_text(const std::vector<std::string>& paths) {
  std::string once;
  for (const std::string& path : paths) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot read " + path);
    once.append(std::istreambuf_iterator<char>(file), {});
  }
  if (once.empty()) throw std::runtime_error("the text files are empty");
  once = replace_invalid_utf8(once);
  std::string text;
  while (text.size() < kTextBytes) text += once;
  return text;
}

std::vector<std::string_view> split_requests(std::string_view text) {
  std::vector<std::string_view> requests;
  while (!text.empty()) {
    std::size_t size = std::min(kRequestBytes, text.size());
    while (size < text.size() && (text[size] & 0xC0) == 0x80) ++size;
    requests.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return requests;
}

// Of processor time, which other work on the machine disturbs less; there is one thread.
double seconds(const std::function<void()>& work) {
  const std::clock_t start = std::clock();
  work();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

double median_seconds(const std::function<void()>& work) {
  work();  // warm-up
  std::array<double, kNumRuns> runs;
  for (double& run : runs) run = seconds(work);
  std::ranges::sort(runs);
  return runs[kNumRuns / 2];
}

void run(const std::string& model, const std::vector<std::string>& files) {
  std::unique_ptr<Tokenizer> tokenizer;
  const double load_s = seconds([&] { tokenizer = open_tokenizer(model); });
  const std::string text = read_text(files);
  const std::vector<std::string_view> requests = split_requests(text);
  std::vector<std::vector<TokenId>> ids;
  std::size_t num_tokens = 0;
  for (const std::string_view request : requests) {
    ids.push_back(tokenizer->encode(request, true));
    num_tokens += ids.back().size();
    // WordPiece gives words back, not their text.
    const std::string decoded = tokenizer->decode(ids.back(), true);
    const bool is_right = tokenizer->vocabulary().model == "bert"
                              ? tokenizer->encode(decoded, true) == ids.back()
                              : decoded == request;
    if (!is_right) throw std::runtime_error("decoding does not give the text back");
  }
  std::size_t sink = 0;
  const double encode_s = median_seconds([&] {
    for (const std::string_view request : requests) sink += tokenizer->encode(request, true).size();
  });
  const double whole_s = median_seconds([&] { sink += tokenizer->encode(text, true).size(); });
  const double decode_s = median_seconds([&] {
    for (const auto& request : ids) sink += tokenizer->decode(request, true).size();
  });
  if (sink == 0) throw std::runtime_error("nothing was encoded");
  const double mb = static_cast<double>(text.size()) / 1e6;
  std::printf(
      "{\"model\": \"%s\", \"pre_tokenizer\": \"%s\", \"vocab_size\": %d, \"load_ms\": %.1f, "
      "\"text_bytes\": %zu, "
      "\"tokens\": %zu, \"encode_mb_per_s\": %.1f, \"encode_whole_mb_per_s\": %.1f, "
      "\"decode_mb_per_s\": %.1f}\n",
      tokenizer->vocabulary().model.c_str(), tokenizer->vocabulary().pre_tokenizer.c_str(),
      tokenizer->vocab_size(), load_s * 1e3, text.size(), num_tokens, mb / encode_s, mb / whole_s,
      mb / decode_s);
}

}  // namespace
}  // namespace batchmill

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s MODEL TEXT_FILE...\n", argv[0]);
    return 2;
  }
  try {
    batchmill::run(argv[1], {argv + 2, argv + argc});
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
