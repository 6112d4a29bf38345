// Every handed chat template and Jinja snippet renders as Jinja2 renders it, byte for byte.
#include <filesystem>
#include <fstream>
#include <map>

#include <gtest/gtest.h>

#include "engine/chat_template.h"
#include "tests/support/json_to_jinja.h"
#include "tests/support/reference_data.h"

namespace batchmill {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kNow_s = 1741529106;  // 2025-03-09 14:05:06 UTC

// What a render gives, in the shape of the reference: {"rendered"} or {"error", "message"}.
Json outcome(const std::string& source, const std::string& bos, const std::string& eos,
             const Json& variables) {
  try {
    const ChatTemplate tmpl(source, bos, eos);
    return {{"rendered", tmpl.render(testing::to_jinja(variables), kNow_s).text}};
  } catch (const TemplateError& error) {
    return {{"error", error.kind()}, {"message", error.what()}};
  }
}

void expect_as_reference(const Json& expected, const Json& actual, const std::string& name) {
  if (expected.contains("rendered")) {
    EXPECT_EQ(actual.value("rendered", "error " + actual.dump()), expected["rendered"]) << name;
    return;
  }
  ASSERT_TRUE(actual.contains("error")) << name << " must fail: " << expected.dump();
  EXPECT_EQ(actual["error"], expected["error"]) << name << ": " << actual.dump();
  if (expected["error"] == "raise_exception") {
    EXPECT_EQ(actual["message"], expected["message"]) << name;
  }
}

TEST(TemplateReferenceTest, RendersJinjaSnippetsLikeJinja2) {
  const auto path = testing::reference_file("templates/jinja.jsonl");
  if (path.empty()) GTEST_SKIP() << "skipped: no reference data (BATCHMILL_REFERENCE)";
  std::ifstream file(path);
  std::size_t count = 0;
  for (std::string line; std::getline(file, line); ++count) {
    const Json row = Json::parse(line);
    const std::string source = row["template"];
    expect_as_reference(row, outcome(source, "", "", row["values"]), source);
  }
  EXPECT_GE(count, 200U);
}

Json variables_of(const Json& tmpl, const Json& conversation, const Json& one) {
  Json variables = {{"messages", conversation["messages"]},
                    {"add_generation_prompt", one["add_generation_prompt"]},
                    {"bos_token", tmpl["bos_token"]},
                    {"eos_token", tmpl["eos_token"]},
                    {"tools", conversation.value("tools", Json())},
                    {"documents", conversation.value("documents", Json())}};
  if (one.contains("tools")) variables["tools"] = one["tools"];
  const Json extra = conversation.value("extra", Json::object());
  for (const auto& [key, value] : extra.items()) {
    variables[key] = value;
  }
  return variables;
}

TEST(TemplateReferenceTest, RendersChatTemplatesLikeTransformers) {
  const auto path = testing::reference_file("templates/conversations.json");
  if (path.empty()) GTEST_SKIP() << "skipped: no reference data (BATCHMILL_REFERENCE)";
  std::ifstream file(path);
  std::map<std::string, Json> conversations;
  const Json all = Json::parse(file);
  for (const Json& conversation : all) {
    conversations[conversation["id"]] = conversation;
  }
  std::size_t templates = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path.parent_path())) {
    if (entry.path().extension() != ".json") continue;
    std::ifstream stream(entry.path());
    const Json tmpl = Json::parse(stream);
    if (!tmpl.is_object() || !tmpl.contains("cases")) continue;
    ++templates;
    for (const Json& one : tmpl["cases"]) {
      const std::string id = one["conversation"];
      const Json variables = variables_of(tmpl, conversations.at(id), one);
      expect_as_reference(
          one, outcome(tmpl["template"], tmpl["bos_token"], tmpl["eos_token"], variables),
          entry.path().filename().string() + " " + id);
    }
  }
  EXPECT_GE(templates, 28U);
}

}  // namespace
}  // namespace batchmill
