// Runs a target over files and the files of folders, each named on the command line: what libFuzzer
// does when it is given inputs, for compilers that have none. With --changes N each input is also
// run N times with random changes, the same ones every time. Exit code 0 if every input came back;
// the input that did not is left as "finding" in the working directory.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/sanitized_build.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

std::string current;  // the input that runs

void run(std::string input) {
  current = std::move(input);
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(current.data()), current.size());
}

extern "C" void keep_finding(int signal) {
  const int file = ::open("finding", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file >= 0 && ::write(file, current.data(), current.size()) >= 0) ::close(file);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// Small changes of bytes, as files are damaged or made to mislead.
class Changes {
 public:
  explicit Changes(const std::vector<std::string>* inputs) : inputs_(*inputs) {}

  std::string apply(std::string input) {
    for (std::size_t edits = 1 + below(4); edits > 0; --edits) change(&input);
    return input;
  }

 private:
  std::size_t below(std::size_t limit) { return limit == 0 ? 0 : random_() % limit; }

  void change(std::string* input) {
    const std::size_t at = below(input->size() + 1);
    const std::size_t rest = input->size() - at;
    const std::size_t length = std::min(rest, std::size_t{1} << below(7));
    switch (below(7)) {
      case 0:
        if (rest > 0) (*input)[at] = static_cast<char>((*input)[at] ^ (1 << below(8)));
        break;
      case 1:
        input->erase(at, below(length + 1));
        break;
      case 2:
        input->insert(at, input->substr(at, length));
        break;
      case 3:
        input->insert(at, piece_of_another());
        break;
      case 4:
        input->replace(at, length, piece_of_another());
        break;
      case 5:
        overwrite_number(input, at);
        break;
      default:
        if (rest > 0) (*input)[at] = static_cast<char>(random_());
    }
  }

  std::string piece_of_another() {
    const std::string& other = inputs_[below(inputs_.size())];
    return other.substr(below(other.size() + 1), std::size_t{1} << below(8));
  }

  void overwrite_number(std::string* input, std::size_t at) {
    constexpr std::array<std::uint64_t, 8> kNumbers = {
        0, 1, 0x7f, 0xff, 0xffff, 0x7fffffff, 0xffffffffffffffff, 0x8000000000000000};
    const std::uint64_t number = kNumbers[below(kNumbers.size())] + below(3) - 1;
    const std::size_t bytes = std::min(input->size() - at, std::size_t{1} << below(4));
    std::memcpy(input->data() + at, &number, bytes);
  }

  const std::vector<std::string>& inputs_;
  std::mt19937_64 random_{7};
};

std::vector<std::filesystem::path> files_of(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return {path};
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// No input may make a reader ask for a lot of memory. Sanitizers reserve more than that themselves.
void limit_memory() {
  if (batchmill::kSanitizedBuild) return;
  const rlimit limit{1 << 30, 1 << 30};
  ::setrlimit(RLIMIT_DATA, &limit);
}

}  // namespace

int main(int argc, char** argv) {
  limit_memory();
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    std::signal(signal, keep_finding);
  }
  std::size_t num_changes = 0;
  std::vector<std::string> inputs;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--changes" && i + 1 < argc) {
      num_changes = std::strtoul(argv[++i], nullptr, 10);
      continue;
    }
    for (const std::filesystem::path& path : files_of(argv[i])) {
      std::ifstream stream(path, std::ios::binary);
      if (!stream) {
        std::fprintf(stderr, "cannot read %s\n", path.c_str());
        return 1;
      }
      inputs.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
      std::fprintf(stderr, "%s\n", path.filename().c_str());  // the last line names a finding
      run(inputs.back());
    }
  }
  if (inputs.empty()) {
    std::fprintf(stderr, "no inputs\n");
    return 1;
  }
  Changes changes(&inputs);
  for (const std::string& input : inputs) {
    for (std::size_t i = 0; i < num_changes; ++i) run(changes.apply(input));
  }
  std::printf("%zu inputs, %zu changed ones\n", inputs.size(), inputs.size() * num_changes);
  return 0;
}
