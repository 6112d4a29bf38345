// A daemon as a process of its own that tests may kill: the tiny model's tokenizer and template,
// and a scripted device whose steps take as long as asked for.
//
// usage: scripted_daemon --data DIR [--step-us N] [--credit-bytes N] [--die-of TEXT]
//                        [--fail-point POINT] [--max-num-seqs N] [--preparer-threads N]
//
// Prints "scripted_daemon: ready" on stderr when it takes requests. SIGTERM: drains and ends. A
// prompt that holds the tokens of TEXT kills the process in the step that has read it.
#include <sys/prctl.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <iostream>
#include <thread>

#include "actors/daemon.h"
#include "tests/support/fail_point.h"
#include "tests/support/scripted_runner.h"

namespace batchmill::testing {
namespace {

struct Settings {
  std::string data_directory;
  std::int64_t step_us = 500;
  std::uint64_t credit_bytes = 16 << 20;
  std::string die_of;
  std::string fail_point;  // fail_point.h
  std::int32_t max_num_seqs = 4;
  std::int32_t preparer_threads = 1;
};

// Letters of the vocabulary, by the length of the context.
TokenId next_token(std::span<const TokenId> context) {
  return 40 + static_cast<TokenId>(context.size() % 50);
}

std::vector<Device> make_devices(const Settings& settings, const ServedModel& served) {
  ScriptedRunnerOptions options;
  options.vocab_size = served.model->config().vocab_size;
  options.block_size_tokens = 16;
  options.num_blocks = 256 * std::max(settings.max_num_seqs, 4);
  options.before_step = [us = settings.step_us](std::int64_t) {
    if (us != 0) std::this_thread::sleep_for(std::chrono::microseconds(us));
  };
  options.script = [poison = served.model->tokenizer()->encode(settings.die_of, false)](
                       std::span<const TokenId> context) {
    if (!poison.empty() && !std::ranges::search(context, poison).empty()) std::abort();
    return next_token(context);
  };
  return only({"scripted:0", std::make_unique<ScriptedRunner>(std::move(options))});
}

int serve(const Settings& settings) {
  sigset_t end;
  sigemptyset(&end);
  sigaddset(&end, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &end, nullptr);

  set_fail_point(settings.fail_point);
  DaemonOptions options;
  options.data_directory = settings.data_directory;
  options.queue.credit_bytes = settings.credit_bytes;
  options.engine.max_num_seqs = settings.max_num_seqs;
  options.preparer_threads = settings.preparer_threads;
  ServedModel served;
  served.name = "tiny";
  served.model = Model::open(std::string(BATCHMILL_TEST_DATA) + "/models/llama3/model-q4_0.gguf");
  served.price = {"2025-01", "USD", 150'000, 75'000, 600'000};
  Daemon daemon(options, {served},
                [&](const ServedModel& model) { return make_devices(settings, model); });
  std::cerr << "scripted_daemon: ready" << std::endl;
  int signal = 0;
  sigwait(&end, &signal);
  daemon.stop(std::chrono::seconds(10));
  return 0;
}

}  // namespace
}  // namespace batchmill::testing

int main(int argc, char** argv) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that dies takes it along
  batchmill::testing::Settings settings;
  CLI::App app("a daemon for tests");
  app.add_option("--data", settings.data_directory)->required();
  app.add_option("--step-us", settings.step_us);
  app.add_option("--credit-bytes", settings.credit_bytes);
  app.add_option("--die-of", settings.die_of);
  app.add_option("--fail-point", settings.fail_point);
  app.add_option("--max-num-seqs", settings.max_num_seqs);
  app.add_option("--preparer-threads", settings.preparer_threads);
  CLI11_PARSE(app, argc, argv);
  try {
    return batchmill::testing::serve(settings);
  } catch (const std::exception& error) {
    std::cerr << "scripted_daemon: " << error.what() << std::endl;
    return 1;
  }
}
