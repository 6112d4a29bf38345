#include "actors/writer.h"

#include "tests/actors/actor_fixture.h"

namespace batchmill::testing {
namespace {

class WriterTest : public ActorTest {
 protected:
  // All that the writer was given is written.
  bool is_written() {
    caf::scoped_actor self{*system_};
    bool written = false;
    self->request(context_->directory.get<WriterActor>(), kPatience, flush_atom::value, true)
        .receive([&](bool answer) { written = answer; }, [](const caf::error&) {});
    return written;
  }
};

TEST_F(WriterTest, CountsALineOnceWhenItsJobCannotEndYet) {
  const JobId id = store_->open_job({}, 1'700'000'000'000).job.id;
  const std::vector<StoredLine> lines = {{1, "{}"}, {2, "{}"}};
  store_->append_lines(id, lines, 6, 0);
  live_.lines_started(id, 2);
  int refused = 0;
  store_->before_ends = [&] {
    if (++refused > 1) return;
    throw StorageError(StorageError::Kind::kFull, "the test's disk");
  };
  start(system_->spawn(writer, context_));
  LineCompletion completion;
  completion.item.key = {id, 1};
  completion.item.attempt = 1;
  completion.error_code = "internal_error";
  send_to<WriterActor>(context_->directory, done_atom::value, completion);
  EXPECT_TRUE(is_written());
  EXPECT_TRUE(is_written());
  stop();
  EXPECT_EQ(refused, 1);
  EXPECT_TRUE(store_->result({id, 1}).has_value());
  EXPECT_EQ(live_.job(id, clock_.steady_s()).lines_running, 1u);
}

}  // namespace
}  // namespace batchmill::testing
