#include "actors/intake.h"

#include <atomic>
#include <functional>
#include <future>
#include <latch>

#include "queue/input_stream.h"
#include "queue/job_client.h"
#include "tests/actors/actor_fixture.h"

namespace batchmill::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint64_t kCreditBytes = 64 << 10;

// An intake behind a socket.
class IntakeTest : public ActorTest {
 protected:
  IntakeTest() {
    QueueOptions& queue = context_->options.queue;
    queue.endpoints = {"ipc://" + directory_.path() + "/queue.sock"};
    queue.credit_bytes = kCreditBytes;
    queue.min_credit_bytes = kCreditBytes;
    queue.upload_timeout_s = 3'600;
    server_ = std::make_unique<JobServer>(
        queue, "test", [this](JobServer&, PeerId peer, WireMessage message) {
          message.caller.max_bytes = max_bytes_;
          send_to<IntakeActor>(context_->directory, frame_atom::value,
                               PeerMessage{std::move(peer), std::move(message)});
        });
    context_->reply = [this](const PeerId& peer, WireMessage message) {
      server_->send(peer, std::move(message));
    };
    start(system_->spawn(intake, context_));
  }
  ~IntakeTest() override { stop(); }

  JobClient client() { return JobClient(context_->options.queue.endpoints[0], "test"); }

  static std::string lines_of(std::size_t num_bytes) {
    std::string content;
    while (content.size() < num_bytes)
      content += "{\"n\": " + std::to_string(content.size()) + "}\n";
    return content;
  }
  static JobClient::Source source_of(const std::string& content) {
    return [&content](std::uint64_t offset, char* buffer, std::size_t size) {
      return offset >= content.size() ? 0 : content.copy(buffer, size, offset);
    };
  }
  // All that the store has of the job.
  std::string stored(const std::string& job) {
    std::string content;
    for (const StoredLine& line : store_->read_lines(*JobId::parse(job), 1, SIZE_MAX, SIZE_MAX)) {
      content += line.bytes + "\n";
    }
    return content;
  }
  std::string refusal(const std::function<void()>& action) {
    try {
      action();
    } catch (const RemoteError& error) {
      return error.code();
    }
    return "";
  }

  std::atomic<std::uint64_t> max_bytes_ = 0;
  std::unique_ptr<JobServer> server_;
};

// The daemon is older than an upload may be silent, and ticks as soon as there is space.
TEST_F(IntakeTest, AnUploadWaitsForDiskSpaceAndGoesOn) {
  const std::string first = lines_of(100);
  client().upload({{"key", "first"}}, source_of(first), nullptr, kPatience);
  clock_.pass(seconds(2 * 3'600));
  const std::string content = lines_of(5 * kCreditBytes);
  std::latch full{1};
  std::atomic<bool> filled = false;
  std::atomic<bool> told = false;
  auto uploaded = std::async(std::launch::async, [&] {
    const auto source = [&](std::uint64_t offset, char* buffer, std::size_t size) {
      if (offset >= 2 * kCreditBytes && !filled.exchange(true)) disk_->is_full = true;
      return source_of(content)(offset, buffer, size);
    };
    return client().upload({{"key", "k"}}, source, nullptr, kPatience, [&](const std::string& why) {
      EXPECT_NE(why.find("no space"), std::string::npos) << why;
      if (!told.exchange(true)) full.count_down();
    });
  });
  full.wait();
  disk_->is_full = false;
  send_to<IntakeActor>(context_->directory, tick_atom::value);
  const JobClient::UploadResult result = uploaded.get();
  EXPECT_EQ(stored(result.job), content);
  EXPECT_EQ(store_->job(*JobId::parse(result.job))->state.upload, UploadState::kSealed);
}

TEST_F(IntakeTest, AnUploadBeginsOnceThereIsDiskSpace) {
  const std::string content = lines_of(100);
  disk_->is_full = true;
  std::latch full{1};
  auto uploaded = std::async(std::launch::async, [&] {
    return client().upload({{"key", "k"}}, source_of(content), nullptr, kPatience,
                           [&](const std::string&) { full.count_down(); });
  });
  full.wait();
  disk_->is_full = false;
  EXPECT_EQ(stored(uploaded.get().job), content);
}

TEST_F(IntakeTest, AClientWaitsForDiskSpaceAsLongAsItSays) {
  const std::string content = lines_of(100);
  disk_->is_full = true;
  EXPECT_EQ(refusal([&] {
              client().upload({{"key", "k"}}, source_of(content), nullptr, seconds(2));
            }),
            "storage_full");
}

// The content is as long as allowed, and part of it is sent twice.
TEST_F(IntakeTest, WhatIsSentAgainDoesNotCountTwice) {
  const std::string content = "{\"text\": \"" + std::string(100'000, 'x') + "\"}";
  max_bytes_ = content.size();
  struct Gone {};
  EXPECT_THROW(client().upload(
                   {{"key", "k"}},
                   [&](std::uint64_t offset, char* buffer, std::size_t size) {
                     // More may be sent than at first, so something has been received.
                     if (offset >= kCreditBytes) throw Gone();
                     return content.copy(buffer, size, offset);
                   },
                   nullptr, kPatience),
               Gone);
  EXPECT_EQ(stored(client().upload({{"key", "k"}}, source_of(content), nullptr, kPatience).job),
            content + "\n");

  max_bytes_ = content.size() - 1;
  EXPECT_EQ(refusal([&] {
              client().upload({{"key", "l"}}, source_of(content), nullptr, kPatience);
            }),
            "limit_exceeded");
}

// A job is cancelled while its lines are on their way to the store: they are not acked.
TEST_F(IntakeTest, LinesOfAJobThatHasJustEndedAreRefused) {
  const auto cancel = [&](const JobId& id) { store_->end_job(id, "batch_cancelled", 1); };
  const std::string content = lines_of(1'000);
  store_->before_write_lines = cancel;
  std::uint64_t acked = 0;
  EXPECT_EQ(refusal([&] {
              client().upload(
                  {{"key", "lines"}}, source_of(content),
                  [&](std::uint64_t bytes) { acked = bytes; }, kPatience);
            }),
            "job_ended");
  EXPECT_EQ(acked, 0u);

  store_->before_write_lines = nullptr;
  store_->before_seal = cancel;
  EXPECT_EQ(refusal([&] {
              client().upload({{"key", "seal"}}, source_of(content), nullptr, kPatience);
            }),
            "job_ended");
}

TEST_F(IntakeTest, ALongAbortIsCut) {
  const std::string content = lines_of(100);
  const std::string reason(500'000, 'm');
  EXPECT_THROW(client().upload(
                   {{"key", "k"}},
                   [&](std::uint64_t offset, char* buffer, std::size_t size) {
                     if (offset >= content.size()) throw InputError("truncated_input", reason);
                     return content.copy(buffer, size, offset);
                   },
                   nullptr, kPatience),
               InputError);
  const Job job = store_->job_of_key("k", "").value();
  EXPECT_EQ(job.state.end_code, "truncated_input");
  EXPECT_LT(job.state.end_message.size(), 400u);
  EXPECT_LT(job.state.errors.at(0).message.size(), 400u);
}

}  // namespace
}  // namespace batchmill::testing
