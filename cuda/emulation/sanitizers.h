// What block_runner.cpp tells the sanitizer that the rest of the program is built with
// (BATCHMILL_SANITIZE_ADDRESS, BATCHMILL_SANITIZE_THREAD, or neither).
#pragma once

#include <cstddef>

#if defined(BATCHMILL_SANITIZE_ADDRESS)
#include <pthread.h>
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
extern "C" void __asan_loadN(void* address, std::size_t bytes);
extern "C" void __asan_storeN(void* address, std::size_t bytes);
#elif defined(BATCHMILL_SANITIZE_THREAD)
#include <sanitizer/tsan_interface.h>
extern "C" void __tsan_read_range(void* address, unsigned long bytes);
extern "C" void __tsan_write_range(void* address, unsigned long bytes);
#endif

namespace batchmill::emulation {

struct FiberState {
  void* tsan_fiber = nullptr;
  void* fake_stack = nullptr;
  const void* thread_stack = nullptr;  // of the thread itself
  std::size_t thread_stack_bytes = 0;
};

#if defined(BATCHMILL_SANITIZE_THREAD)
inline constexpr bool kSeesRaces = true;
inline void release(void* object) { __tsan_release(object); }
inline void acquire(void* object) { __tsan_acquire(object); }
inline void make_fiber(FiberState* fiber) { fiber->tsan_fiber = __tsan_create_fiber(0); }
inline void adopt_thread(FiberState* fiber) { fiber->tsan_fiber = __tsan_get_current_fiber(); }
inline void start_switch(FiberState*, const FiberState& to, void*, std::size_t) {
  __tsan_switch_to_fiber(to.tsan_fiber, 1);  // 1: a switch orders nothing
}
inline void finish_switch(FiberState*) {}
inline void note_read(const void* address, std::size_t bytes) {
  __tsan_read_range(const_cast<void*>(address), bytes);
}
inline void note_write(void* address, std::size_t bytes) { __tsan_write_range(address, bytes); }
#else
inline constexpr bool kSeesRaces = false;
inline void release(void*) {}
inline void acquire(void*) {}
inline void make_fiber(FiberState*) {}
#endif

#if defined(BATCHMILL_SANITIZE_ADDRESS)
inline void adopt_thread(FiberState* fiber) {
  pthread_attr_t attributes;
  void* stack = nullptr;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &stack, &fiber->thread_stack_bytes);
  pthread_attr_destroy(&attributes);
  fiber->thread_stack = stack;
}
// `from` is null when its stack is not used again.
inline void start_switch(FiberState* from, const FiberState& to, void* stack, std::size_t bytes) {
  const bool to_thread = stack == nullptr;
  __sanitizer_start_switch_fiber(from != nullptr ? &from->fake_stack : nullptr,
                                 to_thread ? to.thread_stack : stack,
                                 to_thread ? to.thread_stack_bytes : bytes);
}
inline void finish_switch(FiberState* self) {
  __sanitizer_finish_switch_fiber(self != nullptr ? self->fake_stack : nullptr, nullptr, nullptr);
}
inline void forbid(void* begin, std::size_t bytes) { __asan_poison_memory_region(begin, bytes); }
inline void permit(void* begin, std::size_t bytes) { __asan_unpoison_memory_region(begin, bytes); }
inline void note_read(const void* address, std::size_t bytes) {
  __asan_loadN(const_cast<void*>(address), bytes);
}
inline void note_write(void* address, std::size_t bytes) { __asan_storeN(address, bytes); }
#else
inline void forbid(void*, std::size_t) {}
inline void permit(void*, std::size_t) {}
#if !defined(BATCHMILL_SANITIZE_THREAD)
inline void adopt_thread(FiberState*) {}
inline void start_switch(FiberState*, const FiberState&, void*, std::size_t) {}
inline void finish_switch(FiberState*) {}
inline void note_read(const void*, std::size_t) {}
inline void note_write(void*, std::size_t) {}
#endif
#endif

}  // namespace batchmill::emulation
