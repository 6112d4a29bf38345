#include "actors/queries.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <utility>

#include "actors/batch_object.h"
#include "actors/line_search.h"
#include "actors/output_line.h"
#include "queue/batch_line.h"
#include "storage/ledger.h"

namespace batchmill {
namespace {

constexpr std::size_t kDefaultPageBytes = 1 << 20;
// What a client takes in one message is more.
constexpr std::size_t kMaxPageBytes = 4 << 20;
constexpr std::size_t kMaxPageLines = 20'000;
// Of what fails with its input only the input counts, which is looked up line by line.
constexpr std::size_t kMaxFailedInputs = 1'000;
// Batch objects travel in a header, which has room for kMaxHeaderBytes.
constexpr std::size_t kMaxListBytes = 512 << 10;
constexpr std::int64_t kMaxListLimit = 1'000;

// A question that cannot be answered as asked.
class QueryError : public std::runtime_error {
 public:
  QueryError(std::string code, const std::string& message)
      : std::runtime_error(message), code_(std::move(code)) {}
  const std::string& code() const { return code_; }

 private:
  std::string code_;
};

std::string text_field(const Json& request, const char* key) {
  const auto found = request.find(key);
  if (found == request.end() || found->is_null()) return "";
  if (!found->is_string()) {
    throw QueryError("invalid_request", std::string(key) + " must be a string");
  }
  return found->get<std::string>();
}

std::int64_t integer_field(const Json& request, const char* key, std::int64_t absent) {
  const auto found = request.find(key);
  if (found == request.end() || found->is_null()) return absent;
  if (!found->is_number_integer() || *found < 0) {
    throw QueryError("invalid_request", std::string(key) + " must be a whole number from 0 on");
  }
  return found->get<std::int64_t>();
}

// The store as one caller sees it: jobs of others are not there.
struct View {
  const JobStore& store;
  const Caller& caller;

  std::optional<std::string> owner() const {
    return caller.admin ? std::nullopt : std::optional(caller.key);
  }
};

Job find_job(const View& view, const std::string& text) {
  const std::optional<JobId> id = JobId::parse(text);
  std::optional<Job> job = id ? view.store.job(*id) : std::nullopt;
  if (!job || !view.caller.may_see(job->request.owner))
    throw QueryError("no_such_job", "there is no job " + text);
  return std::move(*job);
}

Job job_field(const View& view, const Json& request) {
  const std::string text = text_field(request, "job");
  if (text.empty()) throw QueryError("invalid_request", "the request names no job");
  return find_job(view, text);
}

// The custom_id written in a line that was stored but never prepared.
std::optional<std::string> written_custom_id(std::string_view bytes) {
  return parse_batch_line(bytes, BatchLineLimits{}).custom_id;
}

// The failure of a line that ended with its job. A job that failed as a whole (a strict one with a
// bad line) took its other lines back.
struct EndedLine {
  const char* code;
  const char* message;
};

EndedLine ended_line(const std::string& end_code) {
  if (end_code == "batch_expired") {
    return {"batch_expired", "the job's deadline passed before this line finished"};
  }
  if (end_code == "batch_cancelled") {
    return {"batch_cancelled", "the job was cancelled before this line finished"};
  }
  return {"batch_cancelled", "the job failed before this line ran"};
}

// The output line of a result; lines that ended with their job are written here.
std::string output_text(const LineResult& result) {
  if (!result.ended_with_job) return result.output;
  const EndedLine ended = ended_line(result.error_code);
  return failure_output(result.key, written_custom_id(result.input), ended.code, ended.message);
}

struct ResultsPage {
  std::string payload;
  std::uint64_t outputs = 0;
  std::uint64_t errors = 0;

  void add(const std::string& line) {
    payload += line;
    payload += '\n';
  }
};

struct ResultsRequest {
  bool outputs = true;
  bool errors = true;
  bool failed_input = false;

  explicit ResultsRequest(const Json& request) {
    const std::string side = text_field(request, "side");
    if (side != "" && side != "all" && side != "output" && side != "errors") {
      throw QueryError("invalid_request", "side must be output, errors or all, is " + side);
    }
    outputs = side != "errors";
    errors = side != "output";
    const auto found = request.find("failed_input");
    if (found != request.end() && !found->is_null()) {
      if (!found->is_boolean()) {
        throw QueryError("invalid_request", "failed_input must be true or false");
      }
      failed_input = found->get<bool>();
    }
    if (failed_input) outputs = false;
  }
};

void add_result(const JobStore& store, const ResultsRequest& request, const LineResult& result,
                ResultsPage* page) {
  const bool failed = result.outcome == LineOutcome::kFailed;
  if (failed ? !request.errors : !request.outputs) {
    failed ? ++page->errors : ++page->outputs;
    return;
  }
  if (request.failed_input) {
    const std::optional<StoredLine> line = store.line(result.key);
    // A line over the size limit was not kept whole, so it cannot be written again.
    if (!line || line->too_long) return;
    page->add(line->bytes);
  } else {
    page->add(output_text(result));
  }
  failed ? ++page->errors : ++page->outputs;
}

WireMessage answer_of(const Json& request, Json fields) {
  WireMessage message;
  message.header["op"] = "response";
  if (request.contains("id")) message.header["id"] = request["id"];
  message.header.update(fields);
  return message;
}

WireMessage answer_page(const Json& request, Json fields, std::string payload) {
  WireMessage message = answer_of(request, std::move(fields));
  message.payload = std::move(payload);
  message.has_payload = true;
  return message;
}

std::size_t page_bytes(const Json& request) {
  const auto wanted = integer_field(request, "max_bytes", kDefaultPageBytes);
  return std::clamp<std::size_t>(static_cast<std::size_t>(wanted), 1, kMaxPageBytes);
}

// --- list

WireMessage list(const Queries& queries, const View& view, const Json& request) {
  std::optional<JobId> after;
  if (const std::string text = text_field(request, "after"); !text.empty()) {
    after = find_job(view, text).id;
  }
  Json batches = Json::array();
  if (const std::string key = text_field(request, "key"); !key.empty()) {
    const std::optional<Job> job = view.store.job_of_key(key, view.caller.key);
    if (job) batches.push_back(queries.batch_object(*job));
    return answer_of(request, {{"batches", std::move(batches)}, {"at_end", true}});
  }
  const auto limit = static_cast<std::size_t>(
      std::clamp<std::int64_t>(integer_field(request, "limit", 20), 1, kMaxListLimit));
  const std::vector<Job> jobs =
      view.store.list(after, limit, text_field(request, "status"), view.owner());
  std::size_t num_bytes = 0;
  for (const Job& job : jobs) {
    Json batch = queries.batch_object(job);
    num_bytes += encode_header(batch).size();
    if (!batches.empty() && num_bytes > kMaxListBytes) break;
    batches.push_back(std::move(batch));
  }
  const bool at_end = batches.size() == jobs.size() && jobs.size() < limit;
  return answer_of(request, {{"batches", std::move(batches)}, {"at_end", at_end}});
}

// --- results

// The next part of the search for a line by its id.
LineSearch search(const JobStore& store, const Json& request, const Job& job,
                  const std::string& custom_id) {
  const auto from = static_cast<std::uint64_t>(integer_field(request, "from", 0));
  const LineSearch found = find_line(store, job, custom_id, from);
  if (found.line == 0 && found.next == 0) {
    throw QueryError("no_such_line", "job " + job.id.to_string() + " has no line with custom_id " +
                                         Json(custom_id).dump());
  }
  return found;
}

WireMessage one_result(const JobStore& store, const Json& request, const Job& job,
                       const ResultsRequest& wanted, const std::string& custom_id) {
  const LineSearch found = search(store, request, job, custom_id);
  ResultsPage page;
  std::optional<LineResult> result;
  if (found.line != 0) result = store.result({job.id, found.line});
  if (result) add_result(store, wanted, *result, &page);
  return answer_page(request,
                     {{"next", found.next},
                      {"at_end", found.next == 0},
                      {"ended", job.ended()},
                      {"outputs", page.outputs},
                      {"errors", page.errors}},
                     std::move(page.payload));
}

WireMessage results(const View& view, const Json& request) {
  const JobStore& store = view.store;
  const Job job = job_field(view, request);
  const ResultsRequest wanted(request);
  const auto id = request.find("custom_id");
  if (id != request.end() && !id->is_null()) {
    return one_result(store, request, job, wanted, text_field(request, "custom_id"));
  }
  const std::string order_text = text_field(request, "order");
  if (order_text != "" && order_text != "input" && order_text != "completed") {
    throw QueryError("invalid_request", "order must be input or completed, is " + order_text);
  }
  // What is submitted again is in the order of its file.
  const bool by_end = order_text == "completed" && !wanted.failed_input;
  const auto from = static_cast<std::uint64_t>(integer_field(request, "from", 0));
  const std::size_t max_bytes = page_bytes(request);
  const JobStore::ResultPage stored =
      store.read_results(job.id, by_end ? ResultOrder::kCompleted : ResultOrder::kInput, from,
                         wanted.failed_input ? kMaxFailedInputs : kMaxPageLines, max_bytes);
  ResultsPage page;
  std::uint64_t next = stored.next;
  bool at_end = stored.at_end;
  for (const LineResult& result : stored.results) {
    // The store has counted what it keeps of a result; an uploaded line may be far longer.
    if (wanted.failed_input && page.payload.size() >= max_bytes) {
      next = result.key.line;
      at_end = false;
      break;
    }
    add_result(store, wanted, result, &page);
  }
  // `ended` was read before the page: once it is true, a page at the end is the last one.
  return answer_page(request,
                     {{"next", next},
                      {"at_end", at_end},
                      {"ended", job.ended()},
                      {"outputs", page.outputs},
                      {"errors", page.errors}},
                     std::move(page.payload));
}

// --- costs

LedgerBy ledger_by(const std::string& text) {
  if (text.empty() || text == "job") return LedgerBy::kJob;
  if (text == "line") return LedgerBy::kLine;
  if (text == "model") return LedgerBy::kModel;
  if (text == "day") return LedgerBy::kDay;
  throw QueryError("invalid_request", "by must be job, line, model or day, is " + text);
}

WireMessage costs(const View& view, const Json& request) {
  const JobStore& store = view.store;
  const LedgerBy by = ledger_by(text_field(request, "by"));
  std::optional<JobId> id;
  if (const std::string text = text_field(request, "job"); !text.empty()) {
    id = find_job(view, text).id;
  }
  if (by == LedgerBy::kLine && !id) {
    throw QueryError("invalid_request", "costs by line are asked for one job");
  }
  const auto from = static_cast<std::uint64_t>(integer_field(request, "from", 0));
  const std::size_t max_bytes = page_bytes(request);
  std::string payload;
  std::uint64_t next = 0;  // a line's number, or how many rows came before
  struct PageFull {};
  bool at_end = true;
  try {
    const auto add = [&](const LedgerRow& row) {
      if (by == LedgerBy::kLine) next = row.line;
      if (by != LedgerBy::kLine && next < from) {
        ++next;
        return;
      }
      if (!payload.empty() && payload.size() >= max_bytes) throw PageFull();
      std::optional<std::string> custom_id;
      if (by == LedgerBy::kLine) {
        if (!row.custom_id.empty()) {
          custom_id = row.custom_id;
        } else if (!row.input.empty()) {
          custom_id = written_custom_id(row.input);
        }
      }
      payload += ledger_object_json(row, by, custom_id).dump();
      payload += '\n';
      ++next;
    };
    if (by == LedgerBy::kLine) {
      store.read_line_ledger(*id, from, add);
    } else {
      store.read_ledger(id, by, add, view.owner());
    }
  } catch (const PageFull&) {
    at_end = false;
  }
  return answer_page(request, {{"next", next}, {"at_end", at_end}}, std::move(payload));
}

// --- explain

Json usage_json(const LineUsage& usage) {
  return {{"prompt", usage.prompt_tokens},
          {"prompt_cached", usage.prompt_cached_tokens},
          {"prompt_computed", usage.prompt_computed_tokens},
          {"recomputed", usage.recomputed_tokens},
          {"completion", usage.completion_tokens}};
}

// The ledger's row of the line; what was not billed has no currency.
Json cost_json(const LineResult& result) {
  const Json row = ledger_object_json(ledger_of(result), LedgerBy::kJob, std::nullopt);
  Json cost = row.at("cost");
  cost["currency"] = row.at("currency");
  cost["price_version"] = row.at("price_version");
  return cost;
}

Json life_of(const JobStore& store, const Job& job, std::uint64_t line, const Json& custom_id) {
  const LineKey key{job.id, line};
  const std::optional<LineResult> result = store.result(key);
  const std::uint32_t attempts = store.attempts(std::span(&key, 1)).front();
  Json life;
  life["job"] = job.id.to_string();
  life["custom_id"] = custom_id;
  life["line"] = line;
  if (!result) {
    life["status"] = attempts != 0 ? "started" : "queued";
    life["error"] = nullptr;
    life["attempts"] = attempts;
    return life;
  }
  life["status"] = result->outcome == LineOutcome::kCompleted ? "completed" : "failed";
  if (result->ended_with_job) {
    const EndedLine ended = ended_line(result->error_code);
    life["error"] = ended.code;
    life["error_message"] = ended.message;
  } else if (result->error_code.empty()) {
    life["error"] = nullptr;
  } else {
    life["error"] = result->error_code;
    const Json output = Json::parse(result->output);
    life["error_message"] = shortened(output.at("error").at("message").get<std::string>());
  }
  life["attempts"] = result->ended_with_job ? attempts : result->attempt;
  life["model"] = result->model.empty() ? Json() : Json(result->model);
  life["device"] = result->device.empty() ? Json() : Json(result->device);
  life["queued_at"] = utc_time_json(result->times.queued_us);
  life["admitted_at"] = utc_time_json(result->times.admitted_us);
  life["first_token_at"] = utc_time_json(result->times.first_token_us);
  life["finished_at"] = utc_time_json(result->times.finished_us);
  life["tokens"] = usage_json(result->usage);
  life["preemptions"] = result->usage.preemptions;
  life["device_seconds"] = {{"prefill", static_cast<double>(result->usage.prefill_us) / 1e6},
                            {"decode", static_cast<double>(result->usage.decode_us) / 1e6}};
  life["cost"] = cost_json(*result);
  return life;
}

WireMessage explain(const View& view, const Json& request) {
  const JobStore& store = view.store;
  const Job job = job_field(view, request);
  if (const std::int64_t number = integer_field(request, "line", 0); number != 0) {
    const std::optional<StoredLine> line = store.line({job.id, static_cast<std::uint64_t>(number)});
    if (!line || line->is_blank()) {
      throw QueryError("no_such_line",
                       "job " + job.id.to_string() + " has no line " + std::to_string(number));
    }
    const std::optional<std::string> written = written_custom_id(line->bytes);
    return answer_of(
        request, {{"line", life_of(store, job, line->line, written ? Json(*written) : Json())}});
  }
  const std::string custom_id = text_field(request, "custom_id");
  const LineSearch found = search(store, request, job, custom_id);
  if (found.line == 0) return answer_of(request, {{"line", nullptr}, {"next", found.next}});
  return answer_of(request, {{"line", life_of(store, job, found.line, custom_id)}});
}

// From the first line that a device took to the last one that finished; lines that failed while
// they were prepared come before.
std::int64_t ran_us(const JobStore& store, const Job& job) {
  constexpr std::size_t kFirstResults = 16;
  constexpr std::size_t kFirstBytes = 64 << 10;
  const std::uint64_t results = job.counters.completed + job.counters.failed;
  if (results == 0) return 0;
  std::int64_t start_us = job.state.in_progress_at_s * 1'000'000;
  for (const LineResult& result :
       store.read_results(job.id, ResultOrder::kCompleted, 0, kFirstResults, kFirstBytes).results) {
    if (result.times.admitted_us == 0) continue;
    start_us = result.times.admitted_us;
    break;
  }
  std::int64_t end_us = start_us;
  for (const LineResult& result :
       store.read_results(job.id, ResultOrder::kCompleted, results - 1, 2, SIZE_MAX).results) {
    if (!result.ended_with_job) end_us = result.times.finished_us;
  }
  return end_us - start_us;
}

}  // namespace

Queries::Queries(const JobStore* store, LiveJobs live) : store_(store), live_(std::move(live)) {}

Json Queries::batch_object(const Job& job) const {
  JobCost cost;
  store_->read_ledger(job.id, LedgerBy::kJob, [&](const LedgerRow& row) {
    if (row.currency.empty()) return;
    cost.several_currencies |= !cost.currency.empty() && cost.currency != row.currency;
    cost.currency = row.currency;
    cost.total += row.cost_prompt + row.cost_prompt_cached + row.cost_completion;
  });
  std::string endpoint;
  for (const StoredLine& line : store_->read_lines(job.id, 1, 4, 64 << 10)) {
    endpoint = url_of_line(line.bytes);
    if (!endpoint.empty()) break;
  }
  if (job.ended()) return batch_object_json(job, endpoint, cost, ran_us(*store_, job), nullptr);
  if (!live_) return batch_object_json(job, endpoint, cost, 0, nullptr);
  const LiveJob live = live_(job.id);
  return batch_object_json(job, endpoint, cost, 0, &live);
}

WireMessage Queries::answer(const Json& request, const Caller& caller) const {
  const View view{*store_, caller};
  WireMessage failure;
  try {
    const std::string what = text_field(request, "what");
    if (what == "status") {
      return answer_of(request, {{"batch", batch_object(job_field(view, request))}});
    }
    if (what == "list") {
      return list(*this, view, request);
    }
    if (what == "results") return results(view, request);
    if (what == "costs") return costs(view, request);
    if (what == "explain") return explain(view, request);
    throw QueryError("invalid_request", "unknown request " + Json(what).dump());
  } catch (const QueryError& error) {
    failure.header = error_header(request, error.code(), error.what());
  }
  return failure;
}

}  // namespace batchmill
