#include "queue/upload_session.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace batchmill {
namespace {

// A header's field that must be a whole number of at least 0.
std::optional<std::uint64_t> unsigned_field(const Json& header, const char* name) {
  const auto field = header.find(name);
  if (field == header.end()) return std::nullopt;
  if (field->is_number_unsigned()) return field->get<std::uint64_t>();
  if (!field->is_number_integer() || field->get<std::int64_t>() < 0) return std::nullopt;
  return static_cast<std::uint64_t>(field->get<std::int64_t>());
}

}  // namespace

UploadSession::UploadSession(std::string job, UploadLimits limits, std::uint64_t durable_lines,
                             std::uint64_t durable_bytes)
    : job_(std::move(job)),
      credit_bytes_(limits.credit_bytes),
      splitter_(limits.max_line_bytes, durable_lines + 1, durable_bytes),
      durable_bytes_(durable_bytes),
      handed_out_bytes_(durable_bytes),
      received_bytes_(durable_bytes) {
  if (durable_bytes == 0) hasher_.emplace();
  extend_limit();
}

UploadSession::Step UploadSession::data(const Json& header, std::string_view payload) {
  Step step;
  const std::optional<std::uint64_t> offset = unsigned_field(header, "offset");
  if (!offset || *offset > UINT64_MAX - payload.size()) {
    step.reply = error("bad_message", "\"data\" needs an \"offset\" that is a whole number");
    return step;
  }
  if (*offset > received_bytes_) {
    step.reply = error("bad_offset", fmt::format("data at offset {} leaves a gap, {} comes next",
                                                 *offset, received_bytes_));
    (*step.reply)["offset"] = received_bytes_;
    return step;
  }
  const std::uint64_t known = std::min<std::uint64_t>(received_bytes_ - *offset, payload.size());
  const std::string_view fresh = payload.substr(known);
  if (fresh.empty()) {
    step.reply = ack();
  } else if (ended_) {
    step.reply = error("upload_ended", "data behind the end of the content");
  } else if (received_bytes_ + fresh.size() > limit_bytes_) {
    step.reply =
        error("credit_exceeded", fmt::format("data up to offset {} was sent, the limit is {}",
                                             received_bytes_ + fresh.size(), limit_bytes_));
    (*step.reply)["offset"] = received_bytes_;
    (*step.reply)["limit"] = limit_bytes_;
  } else {
    if (hasher_) hasher_->update(fresh);
    splitter_.feed(fresh, &step.lines);
    received_bytes_ += fresh.size();
    if (!step.lines.empty()) handed_out_bytes_ = step.lines.back().end_offset_bytes;
    extend_limit();
    // With nothing to wait for, the client still has to learn how far it may go.
    if (!pending()) step.reply = ack();
  }
  return step;
}

std::uint64_t UploadSession::reach_bytes(const Json& header, std::size_t chunk_bytes) const {
  const std::optional<std::uint64_t> offset = unsigned_field(header, "offset");
  if (!offset || *offset > received_bytes_) return received_bytes_;
  return std::max<std::uint64_t>(received_bytes_, *offset + chunk_bytes);
}

UploadSession::Step UploadSession::end(const Json& header) {
  Step step;
  const std::optional<std::uint64_t> bytes = unsigned_field(header, "bytes");
  const auto hash = header.find("content_hash");
  const bool has_hash = hash != header.end() && !hash->is_null();
  if (!bytes || (has_hash && !hash->is_string())) {
    step.reply = error("bad_message",
                       "\"end\" needs \"bytes\" that is a whole number; \"content_hash\" is a "
                       "string");
    return step;
  }
  if (*bytes > received_bytes_) {
    step.reply = error("bad_offset", fmt::format("the content has {} bytes, {} of them arrived",
                                                 *bytes, received_bytes_));
    (*step.reply)["offset"] = received_bytes_;
    return step;
  }
  const std::string stated = has_hash ? hash->get<std::string>() : "";
  if (*bytes < received_bytes_) {
    step.reply = error("content_mismatch", fmt::format("the content has {} bytes, but {} arrived",
                                                       *bytes, received_bytes_));
    return step;
  }
  if (hasher_ && has_hash && stated != hasher_->hex()) {
    step.reply = error("content_mismatch",
                       fmt::format("the content's hash is {}, not {}", hasher_->hex(), stated));
    return step;
  }
  if (!ended_) {
    stated_hash_ = stated;
    splitter_.finish(&step.lines);
    if (!step.lines.empty()) handed_out_bytes_ = step.lines.back().end_offset_bytes;
    ended_ = true;
  }
  step.ended = true;
  return step;
}

Json UploadSession::durable(std::uint64_t offset_bytes) {
  durable_bytes_ = std::max(durable_bytes_, std::min(offset_bytes, handed_out_bytes_));
  extend_limit();
  return ack();
}

Json UploadSession::opened(const Json& request) const {
  Json header = {{"op", "opened"}};
  if (request.contains("id")) header["id"] = request["id"];
  header["job"] = job_;
  header["offset"] = durable_bytes_;
  header["limit"] = limit_bytes_;
  header["credit_bytes"] = credit_bytes_;
  header["sealed"] = false;
  return header;
}

std::string UploadSession::content_hash() const { return hasher_ ? hasher_->hex() : stated_hash_; }

Json UploadSession::ack() const {
  return {{"op", "ack"}, {"job", job_}, {"offset", durable_bytes_}, {"limit", limit_bytes_}};
}

Json UploadSession::error(std::string_view code, const std::string& message) const {
  return error_header({{"job", job_}}, code, message);
}

// While complete lines wait for the disk, credit counts from what is durable. Without any, it
// counts from what has arrived: else a line longer than the credit could never end.
void UploadSession::extend_limit() {
  const std::uint64_t base = pending() ? durable_bytes_ : received_bytes_;
  limit_bytes_ = std::max(limit_bytes_, base + credit_bytes_);
}

Json sealed_header(std::string_view job, std::uint64_t lines) {
  return {{"op", "sealed"}, {"job", job}, {"lines", lines}};
}

}  // namespace batchmill
