#include "actors/supervisor.h"

#include <cerrno>
#include <cstring>
#include <future>

#include "tests/actors/actor_fixture.h"

namespace batchmill::testing {
namespace {

class SupervisorTest : public ActorTest {};

TEST_F(SupervisorTest, EndsTheProcessWhenTheStoreTakesNothingMore) {
  std::promise<std::string> fatal;
  std::atomic<bool> told{false};
  SupervisorSetup setup;
  setup.on_fatal = [&](const std::string& why) {
    if (!told.exchange(true)) fatal.set_value(why);
  };
  const caf::actor actor = system_->spawn(supervisor, context_, std::move(setup));
  disk_->trouble = std::strerror(EIO);
  disk_->is_broken = true;
  EXPECT_THROW(store_->open_job({}, 1'700'000'000'000), StorageError);
  std::future<std::string> why = fatal.get_future();
  ASSERT_EQ(why.wait_for(kPatience), std::future_status::ready);
  EXPECT_EQ(why.get(), store_->why_lost());
  caf::scoped_actor self{*system_};
  self->request(actor, kPatience, flush_atom::value, true)
      .receive([](bool) {}, [](const caf::error&) { ADD_FAILURE(); });
}

}  // namespace
}  // namespace batchmill::testing
