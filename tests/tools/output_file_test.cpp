#include "tools/output_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/support/temporary_directory.h"
#include "tools/exit_code.h"

namespace batchmill {
namespace {

namespace fs = std::filesystem;

class OutputFileTest : public testing::Test {
 protected:
  static std::string read(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  static void write(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }
  static int exit_code_of_check(const fs::path& path, std::initializer_list<std::string> inputs,
                                std::initializer_list<std::string> outputs = {}) {
    try {
      check_output_path("-o", path.string(), inputs, outputs);
      return kExitDone;
    } catch (const ToolError& error) {
      return error.exit_code();
    }
  }

  const TemporaryDirectory directory_;
  const fs::path dir_ = directory_.path();
};

TEST_F(OutputFileTest, AppearsWholeAtTheCommit) {
  const fs::path path = dir_ / "out";
  write(path, "old");
  OutputFile file(path.string());
  file.write("new");
  file.flush();
  EXPECT_EQ(read(path), "old");
  EXPECT_EQ(read(dir_ / "out.part"), "new");
  file.commit();
  EXPECT_EQ(read(path), "new");
  EXPECT_FALSE(fs::exists(dir_ / "out.part"));
}

TEST_F(OutputFileTest, WithoutACommitLeavesTheOldFileAlone) {
  const fs::path path = dir_ / "out";
  write(path, "old");
  { OutputFile(path.string()).write("new"); }
  EXPECT_EQ(read(path), "old");
  EXPECT_FALSE(fs::exists(dir_ / "out.part"));
}

TEST_F(OutputFileTest, ReplacesWhatALinkNames) {
  write(dir_ / "target", "old");
  fs::create_symlink("target", dir_ / "link");
  OutputFile file((dir_ / "link").string());
  file.write("new");
  file.commit();
  EXPECT_TRUE(fs::is_symlink(dir_ / "link"));
  EXPECT_EQ(read(dir_ / "target"), "new");
}

TEST_F(OutputFileTest, MakesWhatALinkNames) {
  fs::create_directory(dir_ / "folder");
  fs::create_symlink("folder/target", dir_ / "link");
  fs::create_symlink(dir_ / "link", dir_ / "link to the link");
  OutputFile file((dir_ / "link to the link").string());
  file.write("new");
  file.commit();
  EXPECT_TRUE(fs::is_symlink(dir_ / "link"));
  EXPECT_TRUE(fs::is_symlink(dir_ / "link to the link"));
  EXPECT_EQ(read(dir_ / "folder" / "target"), "new");
}

TEST_F(OutputFileTest, AFullDeviceIsAStoreError) {
  OutputFile file("/dev/full");
  file.write("x");
  try {
    file.commit();
    FAIL() << "no error";
  } catch (const ToolError& error) {
    EXPECT_EQ(error.exit_code(), kExitStore);
    EXPECT_NE(std::string(error.what()).find("/dev/full"), std::string::npos);
  }
}

TEST_F(OutputFileTest, RefusesItsInputUnderAnyName) {
  const fs::path input = dir_ / "in";
  write(input, "x");
  fs::create_symlink("in", dir_ / "link");
  fs::create_hard_link(input, dir_ / "hard");
  EXPECT_EQ(exit_code_of_check(dir_ / "out", {input.string()}), kExitDone);
  EXPECT_EQ(exit_code_of_check(input, {input.string()}), kExitUsage);
  EXPECT_EQ(exit_code_of_check(dir_ / "link", {input.string()}), kExitUsage);
  EXPECT_EQ(exit_code_of_check(dir_ / "hard", {input.string()}), kExitUsage);
  EXPECT_EQ(exit_code_of_check(dir_ / "." / "new", {(dir_ / "new").string()}), kExitUsage);
}

TEST_F(OutputFileTest, RefusesAnotherOutputUnderAnyNameAlsoBeforeItExists) {
  fs::create_directory(dir_ / "folder");
  fs::create_directory_symlink("folder", dir_ / "link to folder");
  fs::create_symlink("folder/out", dir_ / "link");
  const fs::path before = fs::current_path();
  fs::current_path(dir_ / "folder");
  const std::string absolute = (dir_ / "folder" / "out").string();
  for (const char* name : {"out", "./out", "../folder/out", "../link to folder/out", "../link"}) {
    EXPECT_EQ(exit_code_of_check(name, {}, {absolute}), kExitUsage) << name;
    EXPECT_EQ(exit_code_of_check(absolute, {}, {name}), kExitUsage) << name;
    EXPECT_EQ(exit_code_of_check(absolute, {name}), kExitUsage) << name;
  }
  EXPECT_EQ(exit_code_of_check("other", {}, {absolute}), kExitDone);
  fs::current_path(before);
}

TEST_F(OutputFileTest, RefusesTheNameThatAnotherOutputHasUntilTheEnd) {
  const std::string out = (dir_ / "out").string();
  EXPECT_EQ(exit_code_of_check(out + ".part", {}, {out}), kExitUsage);
  EXPECT_EQ(exit_code_of_check(out, {}, {out + ".part"}), kExitUsage);
  EXPECT_EQ(exit_code_of_check(out, {out + ".part"}), kExitUsage);
  EXPECT_EQ(exit_code_of_check(out + ".part", {out}), kExitDone);
}

TEST_F(OutputFileTest, RefusesFoldersAndMissingFolders) {
  EXPECT_EQ(exit_code_of_check(dir_, {}), kExitUsage);
  EXPECT_EQ(exit_code_of_check(dir_ / "none" / "out", {}), kExitUsage);
  EXPECT_EQ(exit_code_of_check("/dev/null", {"/dev/null"}), kExitDone);
  EXPECT_EQ(exit_code_of_check("/dev/null", {}, {"/dev/null"}), kExitDone);
}

}  // namespace
}  // namespace batchmill
