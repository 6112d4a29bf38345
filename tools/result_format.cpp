#include "tools/result_format.h"

#include <vector>

#include "queue/wire.h"
#include "tools/result_lines.h"

namespace batchmill {
namespace {

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

std::string csv_row(const std::vector<std::string>& fields) {
  std::string row;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (i != 0) row += ',';
    row += csv_field(fields[i]);
  }
  return row + "\n";
}

// What a line has answered: choices, or vectors.
const Json& answers_of(const Json& body) {
  const auto data = body.find("data");
  return data != body.end() ? *data : body.at("choices");
}

// A choice's text, or a vector as JSON.
std::string text_of(const Json& choice) {
  const auto vector = choice.find("embedding");
  if (vector != choice.end())
    return vector->is_string() ? vector->get<std::string>() : vector->dump();
  const auto message = choice.find("message");
  const Json& text = message != choice.end() ? message->at("content") : choice.at("text");
  return text.is_string() ? text.get<std::string>() : "";
}

std::string custom_id_of(const Json& line) {
  const Json& id = line.at("custom_id");
  return id.is_string() ? id.get<std::string>() : "";
}

std::string csv_rows(const Json& line) {
  const std::string id = custom_id_of(line);
  if (is_failure(line)) {
    const Json& error = line.at("error");
    return csv_row(
        {id, "failed", "", "", "", "",
         error.at("code").get<std::string>() + ": " + error.at("message").get<std::string>()});
  }
  const Json& body = line.at("response").at("body");
  std::string prompt_tokens = body.at("usage").at("prompt_tokens").dump();
  const Json& usage = body.at("usage");
  std::string completion_tokens = usage.value("completion_tokens", Json(0)).dump();
  std::string rows;
  for (const Json& choice : answers_of(body)) {
    rows += csv_row({id, "completed", text_of(choice), choice.value("finish_reason", ""),
                     prompt_tokens, completion_tokens, ""});
    // A sum over the column is then the job's.
    prompt_tokens.clear();
    completion_tokens.clear();
  }
  return rows;
}

}  // namespace

ResultFormat parse_result_format(const std::string& name) {
  if (name == "text") return ResultFormat::kText;
  return name == "csv" ? ResultFormat::kCsv : ResultFormat::kJsonl;
}

std::string result_header(ResultFormat format) {
  if (format != ResultFormat::kCsv) return "";
  return "custom_id,status,text,finish_reason,prompt_tokens,completion_tokens,error\n";
}

std::string format_result(ResultFormat format, std::string_view line) {
  if (format == ResultFormat::kJsonl) return std::string(line) + "\n";
  const Json parsed = Json::parse(line);
  if (format == ResultFormat::kCsv) return csv_rows(parsed);
  std::string text;
  if (is_failure(parsed)) return text;
  for (const Json& choice : answers_of(parsed.at("response").at("body"))) {
    text += text_of(choice) + "\n";
  }
  return text;
}

}  // namespace batchmill
