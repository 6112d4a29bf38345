#include "tests/actors/test_daemon.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <thread>

#include "storage/data_directory.h"
#include "tests/support/scripted_encoder.h"

namespace batchmill::testing {
namespace {

constexpr std::chrono::seconds kPatience{60};

}  // namespace

TestDaemon::TestDaemon(Options options) : options_(std::move(options)) {}

void TestDaemon::start() {
  DaemonOptions options;
  options.data_directory = directory_.path() + "/data";
  options.engine = options_.engine;
  options.queue = options_.queue;
  options.clock = clock_;
  options.on_fatal = [this](const std::string& reason) {
    const std::lock_guard lock(mutex_);
    fatal_reason_ = reason;
  };
  options.on_lines_wait = [this](const std::string& trouble) {
    const std::lock_guard lock(mutex_);
    waiting_reason_ = trouble;
  };
  options.replace_lost = [this](const ServedModel& model) { return make_spare(model); };
  ServedModel served;
  served.name = options_.model_name;
  served.model =
      Model::open(std::string(BATCHMILL_TEST_DATA) + "/models/llama3/" + options_.model_file);
  served.max_context_tokens = options_.max_context_tokens;
  served.price = options_.price;
  daemon_ = std::make_unique<Daemon>(
      options, std::vector<ServedModel>{served}, [this](const ServedModel& model) {
        if (options_.encoder) {
          ScriptedEncoderOptions scripted;
          scripted.vocab_size = model.model->config().vocab_size;
          scripted.before_step = options_.before_step;
          return only({.name = "scripted:0",
                       .encoder = std::make_unique<ScriptedEncoder>(std::move(scripted))});
        }
        std::vector<Device> devices;
        for (int i = 0; i < options_.num_devices; ++i) {
          ScriptedRunnerOptions scripted;
          scripted.vocab_size = model.model->config().vocab_size;
          scripted.block_size_tokens = options_.block_size_tokens;
          scripted.num_blocks = options_.num_blocks;
          scripted.max_rows = options_.max_rows;
          scripted.before_step = options_.before_step;
          if (options_.before_step_of) {
            scripted.before_step = [this, i](std::int64_t step) {
              options_.before_step_of(i, step);
            };
          }
          auto runner = std::make_unique<ScriptedRunner>(std::move(scripted));
          if (i == 0) runner_ = runner.get();
          devices.push_back({.name = fmt::format("scripted:{}", i),
                             .runner = std::move(runner),
                             .can_be_lost = options_.num_devices > 1});
        }
        return devices;
      });
  client_ = std::make_unique<TestClient>(daemon_->control_endpoint());
}

std::optional<Device> TestDaemon::make_spare(const ServedModel& model) const {
  if (options_.num_spare_blocks == 0) return std::nullopt;
  ScriptedRunnerOptions scripted;
  scripted.vocab_size = model.model->config().vocab_size;
  scripted.block_size_tokens = options_.block_size_tokens;
  scripted.num_blocks = options_.num_spare_blocks;
  return Device{.name = "spare:0", .runner = std::make_unique<ScriptedRunner>(scripted)};
}

void TestDaemon::stop(std::chrono::milliseconds drain_timeout) {
  client_.reset();
  daemon_->stop(drain_timeout);
  daemon_.reset();
  runner_ = nullptr;
}

void TestDaemon::set_price(Price price) {
  options_.price = std::move(price);
  ServedModel served;
  served.name = options_.model_name;
  served.price = options_.price;
  daemon_->set_prices({served});
}

void TestDaemon::wait_for(const std::function<bool()>& holds) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) {
      ADD_FAILURE() << "waited in vain";
      return;
    }
    std::this_thread::yield();
  }
}

std::string TestDaemon::fatal_reason() const {
  const std::lock_guard lock(mutex_);
  return fatal_reason_;
}

std::string TestDaemon::waiting_reason() const {
  const std::lock_guard lock(mutex_);
  return waiting_reason_;
}

}  // namespace batchmill::testing
