// A job to be submitted: its file, its options and its identity. Filled by CLI11, then opened; used
// by `submit` and `run`. One thread.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "queue/input_stream.h"
#include "queue/job_client.h"

namespace batchmill {

struct SubmissionFlags {
  std::string file;
  std::string name;
  int priority = 0;
  std::string deadline;
  bool strict = false;
  std::string idempotency_key;
  std::vector<std::string> metadata;
  bool fresh = false;
};

// `fresh`: what --fresh does for this command.
void add_submission_flags(CLI::App* app, SubmissionFlags* flags, const std::string& fresh);

class Submission {
 public:
  // Opens the file. Throws ToolError (kExitUsage): flags out of range, a file that cannot be read.
  explicit Submission(SubmissionFlags flags);

  const SubmissionFlags& flags() const { return flags_; }

  // Hash of the content, read once. Of an archive that breaks off: of what can be read, marked, so
  // that it is another content than the whole.
  const std::string& content_hash();

  // What makes this the same job again. Set one of them before upload().
  void set_key(std::string key) { key_ = std::move(key); }
  void set_model_fingerprint(std::string fingerprint) { fingerprint_ = std::move(fingerprint); }
  const std::string& key() const { return key_; }

  struct Uploaded {
    std::string job;
    bool existed = false;  // the same job had been submitted before
    // "the job keeps its name and priority", where it was there already with others; else "".
    std::string kept;
    // What broke the content off; the lines before it run, the job then ends failed.
    std::string truncated;
  };
  // Returns when every line is durable. `timeout`: how long to try again while nobody answers.
  // `progress` is called with the durable bytes, and may throw to end it; `on_full` as in
  // JobClient.
  Uploaded upload(JobClient& client, std::chrono::milliseconds timeout,
                  const JobClient::Progress& progress, const JobClient::OnFull& on_full = nullptr);
  // The same for a command that somebody may give again: if the daemon goes away, or its disk stays
  // full, ToolError says `goes_on`.
  Uploaded upload_or_say(JobClient& client, std::chrono::seconds timeout, bool quiet,
                         const std::string& goes_on);

 private:
  SubmissionFlags flags_;
  std::int64_t deadline_s_ = 0;
  std::unique_ptr<InputStream> input_;
  std::string content_hash_;
  std::string key_;
  std::string fingerprint_;
};

// 32 random hex digits.
std::string random_key();

// `text` as one word of a POSIX shell.
std::string shell_quoted(const std::string& text);

}  // namespace batchmill
