#include "config/reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <sstream>

#include "config/config_key.h"
#include "tests/support/temporary_directory.h"

namespace batchmill {
namespace {

const std::string kFile = std::string(BATCHMILL_SOURCE_DIR) + "/config/batchmill.toml";

std::string read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// Comment lines joined with single spaces, so that line breaks do not matter.
std::string joined_comments(const std::string& text) {
  return std::regex_replace(text, std::regex("\n# "), " ");
}

TEST(ReferenceTest, FileIsWhatTheTableSays) {
  EXPECT_EQ(read(kFile), reference_config()) << "config/README.md says how to write the file anew";
}

TEST(ReferenceTest, FileReadsAsTheDefaults) {
  EXPECT_EQ(config_values(load_config(kFile, {})), config_values(DaemonConfig{}));
}

TEST(ReferenceTest, FileShowsEveryKeyWithDefaultUnitAndMeaning) {
  const std::string text = joined_comments(read(kFile));
  const auto expect_shown = [&](const auto& key, const std::string& value) {
    EXPECT_FALSE(key.meaning.empty()) << key.name;
    EXPECT_THAT(text, testing::HasSubstr(std::string(key.meaning)));
    const std::string name(key.name.substr(key.name.rfind('.') + 1));
    if (key.type == KeyType::kLater) {
      EXPECT_THAT(text, testing::HasSubstr(name + ": not supported yet"));
      return;
    }
    EXPECT_THAT(text, testing::HasSubstr(name + " = " + value));
    EXPECT_THAT(text, testing::HasSubstr("default " + value + ")"));
    EXPECT_THAT(text, testing::HasSubstr(std::string(key.unit)));
  };
  for (const auto& key : config_keys()) expect_shown(key, toml_value(key, DaemonConfig{}));
  for (const auto& key : model_keys()) expect_shown(key, toml_value(key, ModelConfigEntry{}));
  for (const auto& key : price_keys()) expect_shown(key, toml_value(key, TokenPrice{}));
}

TEST(ReferenceTest, EveryDefaultIsInItsRange) {
  for (const auto& key : config_keys()) {
    if (key.type == KeyType::kLater) continue;
    DaemonConfig config;
    std::string value = toml_value(key, config);
    if (value.front() == '"') value = value.substr(1, value.size() - 2);
    EXPECT_NO_THROW(set(config, std::string(key.name), value, "test")) << key.name;
  }
}

TEST(ReferenceTest, ModelTableOfTheFileIsUsable) {
  const std::string text = read(kFile);
  const std::size_t begin = text.find("# [[model]]");
  ASSERT_NE(begin, std::string::npos);
  std::string table =
      std::regex_replace(text.substr(begin, text.find("\n[engine]") - begin),
                         std::regex("(^|\n)# (\\[\\[model\\]\\]|[a-z_]+ = )"), "$1$2");
  table = std::regex_replace(table, std::regex("name = \"\""), "name = \"tiny\"");
  TemporaryDirectory directory;
  const DaemonConfig config = load_config(directory.write("c.toml", table), {});
  ASSERT_EQ(config.models.size(), 1u);
  EXPECT_EQ(config.models[0].name, "tiny");
  EXPECT_EQ(config.models[0].dtype, "auto");
}

}  // namespace
}  // namespace batchmill
