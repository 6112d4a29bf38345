// A client's end of the wire: handshake, requests, uploads with credit, reconnects. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "queue/curve_keys.h"
#include "queue/wire.h"

namespace batchmill {

// The daemon could not be reached, or went away, within the time allowed.
class UnreachableError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The daemon answered with an error.
class RemoteError : public std::runtime_error {
 public:
  RemoteError(std::string code, const std::string& message);
  const std::string& code() const { return code_; }

 private:
  std::string code_;
};

class JobClient {
 public:
  // `keys`: for endpoints of tcp:// that ask for keys; others do without.
  JobClient(std::string endpoint, std::string client_name,
            std::optional<ClientKeys> keys = std::nullopt);
  ~JobClient();
  JobClient(JobClient&&) noexcept;

  // Sends {"op":"request","what":…,…} and waits for its answer; sends it again after a reconnect.
  // Throws UnreachableError, RemoteError, std::invalid_argument (what is given is no endpoint).
  WireMessage request(Json header, std::chrono::milliseconds timeout);

  struct UploadResult {
    std::string job;
    std::uint64_t lines = 0;
    bool existed = false;  // the same key and content had been submitted before
    // What the job keeps from then, although it was asked for otherwise now: "name", "priority", …
    std::vector<std::string> kept = {};
  };
  // Reads the content: fills `buffer` from byte `offset` of the content on, returns the bytes read,
  // 0 at its end. Called with growing offsets, except after a reconnect, when it may step back to
  // the last acked one. Throws InputError when the content breaks (a cut archive).
  using Source = std::function<std::size_t(std::uint64_t offset, char* buffer, std::size_t size)>;
  // Called after every ack with the durable offset.
  using Progress = std::function<void(std::uint64_t acked_bytes)>;

  // Told why the server's disk takes nothing more; again only after something more became durable.
  using OnFull = std::function<void(const std::string& why)>;

  // Uploads a whole job; returns when every line is durable. `open`: the fields of "open" besides
  // op (key, name, priority, …; key must be set). Goes on by itself when the daemon comes back
  // within `timeout` of silence, and when the server's disk, if it is full, has space within
  // `timeout`: after that RemoteError "storage_full".
  UploadResult upload(const Json& open, const Source& source, const Progress& progress,
                      std::chrono::milliseconds timeout, const OnFull& on_full = nullptr);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace batchmill
