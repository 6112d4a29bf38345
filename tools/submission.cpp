#include "tools/submission.h"

#include <fmt/format.h>

#include <iostream>
#include <random>
#include <utility>

#include "config/duration.h"
#include "queue/content_hash.h"
#include "tools/exit_code.h"

namespace batchmill {

namespace {

std::string kept_text(const std::vector<std::string>& options) {
  if (options.empty()) return "";
  std::string text = "the job was there already and keeps its " + options.front();
  for (std::size_t i = 1; i < options.size(); ++i) {
    text += (i + 1 == options.size() ? " and " : ", ") + options[i];
  }
  return text;
}

}  // namespace

void add_submission_flags(CLI::App* app, SubmissionFlags* flags, const std::string& fresh) {
  app->add_option("FILE", flags->file, "Batch lines (JSONL, .gz, .zst); '-': standard input")
      ->required();
  app->add_option("--name", flags->name, "A name for people")->type_name("S");
  app->add_option("--priority", flags->priority, "-10 … 10, higher is sooner [0]")
      ->check(CLI::Range(-10, 10))
      ->type_name("N");
  app->add_option("--deadline", flags->deadline, "Give up after this time: 30s, 15m, 24h, 7d")
      ->type_name("DUR");
  app->add_flag("--strict", flags->strict, "One bad line fails the whole job; nothing runs");
  app->add_option("--idempotency-key", flags->idempotency_key,
                  "The same key with the same content is the same job")
      ->type_name("K");
  app->add_option("--metadata", flags->metadata, "Kept with the job (may be repeated)")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->take_all();
  app->add_flag("--fresh", flags->fresh, fresh);
}

Submission::Submission(SubmissionFlags flags) : flags_(std::move(flags)) {
  if (!flags_.deadline.empty()) {
    const std::optional<std::int64_t> seconds = parse_duration_s(flags_.deadline);
    if (!seconds || *seconds <= 0) {
      throw ToolError(kExitUsage, fmt::format("--deadline {}: expected a duration such as 30s, "
                                              "15m, 24h, 7d",
                                              flags_.deadline));
    }
    deadline_s_ = *seconds;
  }
  for (const std::string& entry : flags_.metadata) {
    if (entry.find('=') == std::string::npos || entry.front() == '=') {
      throw ToolError(kExitUsage, fmt::format("--metadata {}: expected KEY=VALUE", entry));
    }
  }
  input_ = InputStream::open(flags_.file);
}

const std::string& Submission::content_hash() {
  if (!content_hash_.empty()) return content_hash_;
  ContentHasher hasher;
  std::string buffer(1 << 20, '\0');
  std::uint64_t offset = 0;
  try {
    while (const std::size_t size = input_->read_at(offset, buffer.data(), buffer.size())) {
      hasher.update(std::string_view(buffer.data(), size));
      offset += size;
    }
    content_hash_ = hasher.hex();
  } catch (const InputError& error) {
    if (error.code() != "truncated_input") throw;
    content_hash_ = hasher.hex() + "-truncated";
  }
  return content_hash_;
}

Submission::Uploaded Submission::upload(JobClient& client, std::chrono::milliseconds timeout,
                                        const JobClient::Progress& progress,
                                        const JobClient::OnFull& on_full) {
  Json open;
  open["key"] = key_;
  if (!flags_.name.empty()) open["name"] = flags_.name;
  open["priority"] = flags_.priority;
  open["strict"] = flags_.strict;
  if (deadline_s_ != 0) open["deadline_s"] = deadline_s_;
  if (!content_hash_.empty()) open["content_hash"] = content_hash_;
  if (!fingerprint_.empty()) open["model_fingerprint"] = fingerprint_;
  Json metadata = Json::object();
  for (const std::string& entry : flags_.metadata) {
    const std::size_t equals = entry.find('=');
    metadata[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  open["metadata"] = std::move(metadata);
  const auto source = [this](std::uint64_t offset, char* buffer, std::size_t size) {
    return input_->read_at(offset, buffer, size);
  };
  try {
    const JobClient::UploadResult result = client.upload(open, source, progress, timeout, on_full);
    return {result.job, result.existed, kept_text(result.kept), ""};
  } catch (const InputError& error) {
    if (error.code() != "truncated_input") throw;
    const Json batches =
        client.request({{"what", "list"}, {"key", key_}}, timeout).header.at("batches");
    // Without a whole line there is no job.
    if (batches.empty()) throw;
    return {batches.front().at("id"), false, "", error.what()};
  }
}

Submission::Uploaded Submission::upload_or_say(JobClient& client, std::chrono::seconds timeout,
                                               bool quiet, const std::string& goes_on) {
  const auto fail = [&](ExitCode code, const std::exception& error) {
    throw ToolError(code, fmt::format("{}\nbatchmill: this goes on where it stopped:\n  {}",
                                      error.what(), goes_on));
  };
  const auto on_full = [&](const std::string& why) {
    if (quiet) return;
    std::cerr << fmt::format("{}; waiting up to {} s for space", why, timeout.count()) << std::endl;
  };
  try {
    return upload(
        client, timeout, [](std::uint64_t) {}, on_full);
  } catch (const UnreachableError& error) {
    fail(kExitUnreachable, error);
  } catch (const RemoteError& error) {
    if (error.code() != "storage_full") throw;
    fail(kExitStore, error);
  }
  __builtin_unreachable();
}

std::string random_key() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", device(), device(), device(), device());
}

std::string shell_quoted(const std::string& text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,@%+";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

}  // namespace batchmill
