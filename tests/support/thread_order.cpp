// Tells the thread sanitizer which order CAF's mailboxes and scheduler give. Debian builds CAF
// without it, so the atomics that hand a message, or an actor, from one thread to the next are not
// seen. The functions below take the place of CAF's in a program, say what happens before what, and
// call CAF's. Linked into every program with actors when built with the thread sanitizer, into no
// other.
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include <caf/blocking_actor.hpp>
#include <caf/scheduled_actor.hpp>
#include <cstdio>
#include <cstdlib>

namespace {

// CAF's own function of this mangled name.
template <class Function>
Function* next(const char* symbol) {
  void* found = dlsym(RTLD_NEXT, symbol);
  if (found == nullptr) {
    std::fprintf(stderr, "thread_order: CAF has no %s\n", symbol);
    std::abort();
  }
  return reinterpret_cast<Function*>(found);
}

}  // namespace

namespace caf {

// What was done before a message was sent happens before its receiver runs next.
void scheduled_actor::enqueue(mailbox_element_ptr message, execution_unit* worker) {
  static auto* const caf_enqueue =
      next<void(scheduled_actor*, mailbox_element_ptr, execution_unit*)>(
          "_ZN3caf15scheduled_actor7enqueueESt10unique_ptrINS_15mailbox_elementENS_"
          "6detail8disposerEEPNS_"
          "14execution_unitE");
  __tsan_release(this);
  caf_enqueue(this, std::move(message), worker);
}

// And what was done before an actor was spawned happens before its first run.
void scheduled_actor::launch(execution_unit* worker, bool lazy, bool hide) {
  static auto* const caf_launch = next<void(scheduled_actor*, execution_unit*, bool, bool)>(
      "_ZN3caf15scheduled_actor6launchEPNS_14execution_unitEbb");
  __tsan_release(this);
  caf_launch(this, worker, lazy, hide);
}

// What an actor did in one run happens before its next, in whatever thread.
resumable::resume_result scheduled_actor::resume(execution_unit* worker, size_t max_throughput) {
  static auto* const caf_resume =
      next<resumable::resume_result(scheduled_actor*, execution_unit*, size_t)>(
          "_ZN3caf15scheduled_actor6resumeEPNS_14execution_unitEm");
  __tsan_acquire(this);
  const resumable::resume_result result = caf_resume(this, worker, max_throughput);
  __tsan_release(this);  // the last reference may be gone: only the address is used
  return result;
}

// Messages that came while an actor ran are taken in the same run.
invoke_message_result scheduled_actor::consume(mailbox_element& message) {
  static auto* const caf_consume = next<invoke_message_result(scheduled_actor*, mailbox_element&)>(
      "_ZN3caf15scheduled_actor7consumeERNS_15mailbox_elementE");
  __tsan_acquire(this);
  return caf_consume(this, message);
}

void blocking_actor::enqueue(mailbox_element_ptr message, execution_unit* worker) {
  static auto* const caf_enqueue =
      next<void(blocking_actor*, mailbox_element_ptr, execution_unit*)>(
          "_ZN3caf14blocking_actor7enqueueESt10unique_ptrINS_15mailbox_elementENS_"
          "6detail8disposerEEPNS_"
          "14execution_unitE");
  __tsan_release(this);
  caf_enqueue(this, std::move(message), worker);
}

// Waits come before every message that is taken, and return at once if there is one.
void blocking_actor::await_data() {
  static auto* const caf_await =
      next<void(blocking_actor*)>("_ZN3caf14blocking_actor10await_dataEv");
  caf_await(this);
  __tsan_acquire(this);
}

bool blocking_actor::await_data(timeout_type timeout) {
  static auto* const caf_await = next<bool(blocking_actor*, timeout_type)>(
      "_ZN3caf14blocking_actor10await_dataENSt6chrono10time_pointINS1_3_V212system_clockENS1_"
      "8durationIlSt5ratioILl1ELl1000000000EEEEEE");
  const bool has_data = caf_await(this, timeout);
  __tsan_acquire(this);
  return has_data;
}

// All that was done with an actor happens before the last reference to it goes, and it with that.
void intrusive_ptr_release(actor_control_block* block) {
  static auto* const caf_release =
      next<void(actor_control_block*)>("_ZN3caf21intrusive_ptr_releaseEPNS_19actor_control_blockE");
  abstract_actor* const actor = block->get();
  __tsan_release(actor);
  __tsan_acquire(actor);
  caf_release(block);
}

}  // namespace caf
