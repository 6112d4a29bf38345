// A job intake that keeps everything in memory: the other side of a JobServer in tests. Its Disk
// outlives it, as a store outlives a daemon that is killed.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "queue/job_server.h"
#include "queue/open_request.h"
#include "queue/upload_session.h"

namespace batchmill {

struct MemoryDisk {
  struct Job {
    std::string id;
    std::vector<std::string> lines;
    std::uint64_t bytes = 0;
    bool sealed = false;
    std::string abort_code;
  };

  // What there is of a key's job now.
  Job job(const std::string& key) {
    const std::lock_guard lock(mutex);
    return jobs[key];
  }
  void clear() {
    const std::lock_guard lock(mutex);
    jobs.clear();
  }
  std::size_t num_jobs() {
    const std::lock_guard lock(mutex);
    return jobs.size();
  }

  std::mutex mutex;
  std::map<std::string, Job> jobs;  // by key
};

class MemoryIntake {
 public:
  // Goes deaf after `messages_until_deaf` upload messages: takes nothing more, answers nothing.
  MemoryIntake(const QueueOptions& options, MemoryDisk& disk, int messages_until_deaf = -1)
      : options_(options),
        disk_(disk),
        messages_left_(messages_until_deaf),
        server_(options, "test", [this](JobServer& server, PeerId peer, WireMessage message) {
          const std::lock_guard lock(disk_.mutex);
          if (deaf_) return;
          take(server, peer, std::move(message));
          changed_.notify_all();
        }) {}

  void wait_until_deaf() {
    std::unique_lock lock(disk_.mutex);
    changed_.wait(lock, [&] { return deaf_; });
  }

  JobServer& server() { return server_; }

 private:
  void take(JobServer& server, const PeerId& peer, WireMessage message) {
    const std::string op = message.header["op"];
    const auto answer = [&](Json header) { server.send(peer, {std::move(header), "", false}); };
    if (op == "request") {
      Json header = {
          {"op", "response"}, {"id", message.header["id"]}, {"what", message.header["what"]}};
      if (message.header["what"] == "fail") {
        return answer(error_header(message.header, "no_such_job", "there is none"));
      }
      if (message.header["what"] == "results") {
        return answer_results(server, peer, header, message.header);
      }
      return server.send(peer, {header, message.header.value("text", ""), true});
    }
    if (messages_left_ == 0) {
      deaf_ = true;
      return;
    }
    if (messages_left_ > 0) --messages_left_;
    if (op == "open") return open(message.header, answer);
    const auto session = sessions_.find(message.header.value("job", ""));
    if (session == sessions_.end()) {
      return answer(error_header(message.header, "no_such_job", "open it first"));
    }
    MemoryDisk::Job& job = disk_.jobs[session->first.substr(4)];
    if (op == "abort") {
      job.abort_code = message.header["code"];
      return answer({{"op", "aborted"}, {"job", job.id}});
    }
    UploadSession::Step step = op == "data" ? session->second.data(message.header, message.payload)
                                            : session->second.end(message.header);
    for (InputLine& line : step.lines) {
      job.bytes = line.end_offset_bytes;
      job.lines.push_back(std::move(line.bytes));
    }
    if (!step.lines.empty()) answer(session->second.durable(job.bytes));
    if (step.reply) answer(*step.reply);
    if (step.ended) {
      if (job.lines.empty()) {
        return answer(error_header(message.header, "empty_file", "the file is empty"));
      }
      job.sealed = true;
      answer(sealed_header(job.id, job.lines.size()));
    }
  }

  // One line a page, as it was uploaded; the job has ended when it is sealed.
  void answer_results(JobServer& server, const PeerId& peer, Json header, const Json& request) {
    const MemoryDisk::Job& job = disk_.jobs[request["job"].get<std::string>().substr(4)];
    const std::size_t from = request["from"];
    const bool at_end = from >= job.lines.size();
    header.update({{"next", from + (at_end ? 0 : 1)}, {"at_end", at_end}, {"ended", job.sealed}});
    server.send(peer, {header, at_end ? "" : job.lines[from] + "\n", true});
  }

  void open(const Json& header, const std::function<void(Json)>& answer) {
    std::string why;
    const auto request = read_open_request(header, &why);
    if (!request) return answer(error_header(header, "invalid_request", why));
    MemoryDisk::Job& job = disk_.jobs[request->key];
    job.id = "job-" + request->key;
    const UploadLimits limits = {options_.max_line_bytes, options_.credit_bytes};
    const auto [session, fresh] =
        sessions_.try_emplace(job.id, job.id, limits, job.lines.size(), job.bytes);
    Json opened = session->second.opened(header);
    opened["sealed"] = job.sealed;
    opened["lines"] = job.lines.size();
    answer(opened);
  }

  QueueOptions options_;
  MemoryDisk& disk_;
  int messages_left_;
  bool deaf_ = false;
  std::condition_variable changed_;
  std::map<std::string, UploadSession> sessions_;
  JobServer server_;
};

}  // namespace batchmill
