#include "queue/job_client.h"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "queue/input_stream.h"
#include "queue/server_connection.h"

namespace batchmill {
namespace {

using Event = ServerConnection::Event;

constexpr std::uint64_t kChunkBytes = 1 << 20;
// A server that keeps asking for another offset without storing anything is not helped by more.
constexpr int kMaxSteps = 100;
constexpr int kFullRetryMs = 1000;

std::uint64_t number_of(const Json& header, const char* name, std::uint64_t absent) {
  const auto field = header.find(name);
  return field != header.end() && field->is_number_unsigned() ? field->get<std::uint64_t>()
         : field != header.end() && field->is_number_integer()
             ? static_cast<std::uint64_t>(std::max<std::int64_t>(field->get<std::int64_t>(), 0))
             : absent;
}

bool has(const Json& header, const char* name, const std::string& value) {
  return text_of(header, name) == value;
}

[[noreturn]] void throw_remote(const Json& header) {
  throw RemoteError(text_of(header, "code"), text_of(header, "message"));
}

// One upload between two losses of the connection.
class UploadRun {
 public:
  UploadRun(ServerConnection& connection, const JobClient::Source& source,
            const JobClient::Progress& progress, const Json& opened, std::string content_hash)
      : connection_(connection),
        source_(source),
        progress_(progress),
        job_(text_of(opened, "job")),
        content_hash_(std::move(content_hash)),
        acked_(number_of(opened, "offset", 0)),
        limit_(number_of(opened, "limit", acked_ + number_of(opened, "credit_bytes", kChunkBytes))),
        next_(acked_) {
    if (progress_) progress_(acked_);
  }

  // The header of "sealed"; absent when the connection was lost. Throws InputError after the server
  // has been told that the content broke.
  std::optional<Json> run(Deadline& deadline) {
    WireMessage message;
    while (true) {
      fill_chunk(deadline);
      const bool something_to_send = chunk_bytes_ != 0 || (at_end_ && !said_end_);
      const bool sent = something_to_send && send_next();
      const Event event =
          connection_.next(&message, deadline, something_to_send && !sent, !sent && !can_read());
      if (event == Event::kLost) return std::nullopt;
      if (event == Event::kMessage && has(message.header, "job", job_)) deadline.restart();
      if (event == Event::kMessage && take(message.header)) {
        if (broken_) throw InputError(*broken_);
        return message.header;
      }
      if (interrupted_) return std::nullopt;
    }
  }

  bool said_end() const { return said_end_; }

 private:
  bool can_read() const { return !at_end_ && chunk_bytes_ == 0 && next_ < limit_; }

  void fill_chunk(Deadline& deadline) {
    if (!can_read()) return;
    const std::uint64_t most =
        std::min({kChunkBytes, connection_.max_message_bytes(), limit_ - next_});
    chunk_ = std::make_unique_for_overwrite<char[]>(most);
    try {
      chunk_bytes_ = source_(next_, chunk_.get(), most);
    } catch (const InputError& error) {
      broken_ = error;
    }
    at_end_ = chunk_bytes_ == 0;
    deadline.restart();  // a slow source is not the server's silence
  }

  bool send_next() {
    if (chunk_bytes_ != 0) {
      const Json header = {{"op", "data"}, {"job", job_}, {"offset", next_}};
      if (!connection_.try_send(header, &chunk_, chunk_bytes_)) return false;
      next_ += std::exchange(chunk_bytes_, 0);
      return true;
    }
    Json header;
    if (broken_) {
      header = {
          {"op", "abort"}, {"job", job_}, {"code", broken_->code()}, {"message", broken_->what()}};
    } else {
      header = {{"op", "end"}, {"job", job_}, {"bytes", next_}};
      if (!content_hash_.empty()) header["content_hash"] = content_hash_;
    }
    said_end_ = connection_.try_send(header);
    return said_end_;
  }

  // True when the upload is over.
  bool take(const Json& header) {
    if (!has(header, "job", job_)) return false;  // late answers to something else
    if (has(header, "op", "sealed")) return true;
    if (has(header, "op", "aborted")) return broken_.has_value();
    if (has(header, "op", "ack")) {
      const std::uint64_t offset = number_of(header, "offset", acked_);
      limit_ = std::max(limit_, number_of(header, "limit", 0));
      if (offset > acked_) {
        acked_ = offset;
        steps_ = 0;
        if (progress_) progress_(acked_);
      }
    } else if (has(header, "op", "error") && has(header, "code", "unknown_upload")) {
      interrupted_ = true;
    } else if (has(header, "op", "error")) {
      const bool go_elsewhere =
          (has(header, "code", "bad_offset") || has(header, "code", "credit_exceeded")) &&
          header.contains("offset") && ++steps_ <= kMaxSteps;
      if (!go_elsewhere) throw_remote(header);
      next_ = std::max(number_of(header, "offset", acked_), acked_);
      limit_ = std::max(limit_, number_of(header, "limit", 0));
      chunk_bytes_ = 0;
      at_end_ = said_end_ = false;
      broken_.reset();
    }
    return false;
  }

  ServerConnection& connection_;
  const JobClient::Source& source_;
  const JobClient::Progress& progress_;
  std::string job_;
  std::string content_hash_;
  std::uint64_t acked_;  // durable
  std::uint64_t limit_;  // may be sent
  std::uint64_t next_;  // content offset of chunk_
  std::unique_ptr<char[]> chunk_;
  std::size_t chunk_bytes_ = 0;  // read, not yet sent
  bool at_end_ = false;
  bool said_end_ = false;
  std::optional<InputError> broken_;
  int steps_ = 0;
  bool interrupted_ = false;  // the server has forgotten the upload, not what was acked
};

}  // namespace

RemoteError::RemoteError(std::string code, const std::string& message)
    : std::runtime_error(message), code_(std::move(code)) {}

class JobClient::Impl {
 public:
  Impl(std::string endpoint, std::string client_name, std::optional<ClientKeys> keys)
      : connection_(std::move(endpoint), std::move(client_name), std::move(keys)) {}

  // Sends `header` with an id of its own and waits for the answer to it.
  WireMessage ask(Json header, Deadline& deadline) {
    bool was_sent = false;
    const bool may_have_been_done = has(header, "op", "request");
    try {
      return ask_once_and_again(std::move(header), deadline, &was_sent);
    } catch (const UnreachableError& error) {
      if (!was_sent || !may_have_been_done) throw;
      // Asked again, what they change is changed already.
      throw UnreachableError(fmt::format(
          "{}; what became of the request is not known, asking again is safe", error.what()));
    }
  }

  UploadResult upload(const Json& open, const Source& source, const Progress& progress,
                      std::chrono::milliseconds timeout, const OnFull& on_full) {
    Deadline deadline(timeout);
    Deadline patience(timeout);  // with a full disk
    std::optional<std::uint64_t> full_at;  // so much was durable when the disk was full last
    std::uint64_t acked = 0;
    const Progress note = [&](std::uint64_t acked_bytes) {
      acked = acked_bytes;
      if (progress) progress(acked_bytes);
    };
    bool said_end = false;
    while (true) {
      try {
        if (const auto result = upload_once(open, source, note, deadline, &said_end)) {
          return *result;
        }
      } catch (const RemoteError& error) {
        if (error.code() != "storage_full") throw;
        if (full_at != acked) {
          patience.restart();
          if (on_full) on_full(error.what());
        }
        full_at = acked;
        pollfd item = {patience.fd(), POLLIN, 0};
        if (::poll(&item, 1, kFullRetryMs) > 0) throw;
      }
    }
  }

 private:
  // `was_sent`: to a server that had said that it is there.
  WireMessage ask_once_and_again(Json header, Deadline& deadline, bool* was_sent) {
    const std::string id = fmt::format("{}", ++last_id_);
    header["id"] = id;
    WireMessage message;
    int interruptions = 0;
    bool greeted = false;
    while (true) {
      // One greeting counts as a sign of life; greetings alone are no answer.
      if (connection_.ensure_welcomed(deadline) && !std::exchange(greeted, true))
        deadline.restart();
      bool sent = connection_.try_send(header);
      *was_sent = *was_sent || sent;
      while (true) {
        const Event event = connection_.next(&message, deadline, !sent, true);
        if (event == Event::kLost) break;
        if (event == Event::kWritable) sent = connection_.try_send(header);
        *was_sent = *was_sent || sent;
        if (event != Event::kMessage || !has(message.header, "id", id)) continue;
        deadline.restart();
        if (has(message.header, "code", "interrupted") && ++interruptions <= kMaxSteps) break;
        if (has(message.header, "op", "error")) throw_remote(message.header);
        return message;
      }
    }
  }

  // Absent when the connection was lost or the server has forgotten the upload: open it again.
  std::optional<UploadResult> upload_once(const Json& open, const Source& source,
                                          const Progress& progress, Deadline& deadline,
                                          bool* said_end) {
    Json header = {{"op", "open"}};
    header.update(open);
    const Json opened = ask(header, deadline).header;
    UploadResult result = {text_of(opened, "job"), number_of(opened, "lines", 0), !*said_end, {}};
    const auto kept = opened.find("kept");
    for (const Json& option : kept != opened.end() && kept->is_array() ? *kept : Json::array()) {
      if (option.is_string()) result.kept.push_back(option);
    }
    if (opened.contains("sealed") && opened["sealed"] == true) return result;
    UploadRun run(connection_, source, progress, opened, text_of(open, "content_hash"));
    const std::optional<Json> sealed = run.run(deadline);
    *said_end = *said_end || run.said_end();
    if (!sealed) return std::nullopt;
    result.lines = number_of(*sealed, "lines", 0);
    result.existed = false;
    return result;
  }

  ServerConnection connection_;
  std::uint64_t last_id_ = 0;
};

JobClient::JobClient(std::string endpoint, std::string client_name, std::optional<ClientKeys> keys)
    : impl_(std::make_unique<Impl>(std::move(endpoint), std::move(client_name), std::move(keys))) {}

JobClient::~JobClient() = default;

JobClient::JobClient(JobClient&&) noexcept = default;

WireMessage JobClient::request(Json header, std::chrono::milliseconds timeout) {
  Deadline deadline(timeout);
  header["op"] = "request";
  return impl_->ask(std::move(header), deadline);
}

JobClient::UploadResult JobClient::upload(const Json& open, const Source& source,
                                          const Progress& progress,
                                          std::chrono::milliseconds timeout,
                                          const OnFull& on_full) {
  return impl_->upload(open, source, progress, timeout, on_full);
}

}  // namespace batchmill
