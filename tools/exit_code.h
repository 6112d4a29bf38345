// How batchmill's programs end, and the error that carries it to main. A ToolError's text is one
// clear line for a person.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>

namespace batchmill {

enum ExitCode : int {
  kExitDone = 0,
  kExitFailedLines = 1,  // the job ended with failed lines, or with no success
  kExitUsage = 2,  // wrong usage, a bad config or model, input that was refused
  kExitUnreachable = 3,  // no daemon answers
  kExitNotFound = 4,  // no such job, line or model file
  kExitStore = 5,  // the store is locked, damaged or full; an output cannot be written
  kExitInterrupted = 130,
};

class ToolError : public std::runtime_error {
 public:
  ToolError(int exit_code, const std::string& message)
      : std::runtime_error(message), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

// What was printed counts as written only when this returns; otherwise ToolError (kExitStore).
void check_standard_output();

// Runs a program's body and turns everything it throws into one line on stderr ("PROGRAM: …") and
// an exit code.
int run_guarded(const char* program, const std::function<int()>& body);

}  // namespace batchmill
