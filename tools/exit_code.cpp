#include "tools/exit_code.h"

#include <exception>
#include <iostream>
#include <system_error>

#include "config/config_error.h"
#include "queue/input_stream.h"
#include "queue/job_client.h"
#include "storage/job_store.h"

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

}  // namespace

int run_guarded(const char* program, const std::function<int()>& body) {
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
    return say(program, kExitStore, error.what());
  } catch (const std::exception& error) {
    return say(program, kExitUsage, error.what());
  }
}

}  // namespace batchmill
