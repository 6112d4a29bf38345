#include "tools/exit_code.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <new>
#include <system_error>

#include "config/config_error.h"
#include "queue/input_stream.h"
#include "queue/job_client.h"
#include "storage/job_store.h"
#include "storage/life_mark.h"
#include "tools/printable.h"

namespace batchmill {
namespace {

int remote_exit_code(const std::string& code) {
  if (code == "no_such_job" || code == "no_such_line") return kExitNotFound;
  if (code == "bad_answer" || code == "answer_too_large") return kExitUnreachable;
  if (code == "storage_error" || code == "storage_full" || code == "internal_error") {
    return kExitStore;
  }
  return kExitUsage;
}

int say(const char* program, int exit_code, const std::string& message) {
  std::cerr << program << ": " << message << std::endl;
  return exit_code;
}

constexpr const char* kNoThread =
    "a thread cannot be started: raise the limit on processes or memory (ulimit -u, ulimit -v, "
    "TasksMax)";

const char* name_of_program = "";

// Threads of libraries have nobody who catches. Too little memory, or too few threads, is no bug:
// it ends the process as a full disk does. Everything else aborts.
[[noreturn]] void end_for_lack() {
  const char* why = nullptr;
  try {
    if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
    // A thread that was started is given up while the failure to start another one is passed on.
    if (std::uncaught_exceptions() > 0) why = kNoThread;
  } catch (const std::bad_alloc&) {
    LifeMark::note_own_end();  // a line that is too much for this machine comes again
    why = "out of memory";
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::resource_unavailable_try_again) why = kNoThread;
    if (why == nullptr) std::fprintf(stderr, "%s: %s\n", name_of_program, error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name_of_program, error.what());
  } catch (...) {
  }
  if (why == nullptr) std::abort();
  std::fprintf(stderr, "%s: cannot go on, what is stored stays: %s\n", name_of_program, why);
  ::_exit(kExitStore);
}

}  // namespace

void check_standard_output() {
  if (!std::cout.flush()) throw ToolError(kExitStore, "cannot write standard output");
}

int run_guarded(const char* program, const std::function<int()>& body) {
  name_of_program = program;
  make_messages_printable();
  std::set_terminate(end_for_lack);
  try {
    return body();
  } catch (const ToolError& error) {
    return say(program, error.exit_code(), error.what());
  } catch (const ConfigError& error) {
    return say(program, kExitUsage, error.what());
  } catch (const InputError& error) {
    return say(program, kExitUsage, error.what());
  } catch (const UnreachableError& error) {
    return say(program, kExitUnreachable, error.what());
  } catch (const RemoteError& error) {
    return say(program, remote_exit_code(error.code()), error.what());
  } catch (const StorageError& error) {
    return say(program, error.kind() == StorageError::Kind::kMissing ? kExitNotFound : kExitStore,
               error.what());
  } catch (const Json::exception& error) {
    // Arguments that are not UTF-8 cannot be sent.
    return say(program, kExitUsage, error.what());
  } catch (const std::system_error& error) {
    const bool no_thread = error.code() == std::errc::resource_unavailable_try_again;
    return say(program, kExitStore, no_thread ? kNoThread : error.what());
  } catch (const std::bad_alloc&) {
    return say(program, kExitStore, "out of memory");
  } catch (const std::exception& error) {
    return say(program, kExitUsage, error.what());
  }
}

}  // namespace batchmill
