// What tests ask of a daemon through its socket. One thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "queue/job_client.h"

namespace batchmill::testing {

class TestClient {
 public:
  explicit TestClient(const std::string& endpoint, std::optional<ClientKeys> keys = std::nullopt);

  // Submits a job's content; returns its id. `open` names at least the key.
  std::string submit(const std::string& content, const Json& open,
                     const JobClient::Progress& progress = nullptr);
  Json request(Json header);
  std::string request_payload(Json header);
  Json batch(const std::string& job);
  // Waits until the job has ended; fails the test after a minute. Returns its batch object.
  Json wait(const std::string& job);
  // Waits until `holds` is true of the job's batch object.
  Json wait_until(const std::string& job, const std::function<bool(const Json&)>& holds);
  // All output and error lines, parsed.
  std::vector<Json> results(const std::string& job);
  std::vector<Json> costs(const std::string& job, const std::string& by);

 private:
  JobClient client_;
};

// A chat line that asks for exactly `max_tokens` tokens.
std::string chat_line(const std::string& custom_id, const std::string& text, int max_tokens = 4);

}  // namespace batchmill::testing
