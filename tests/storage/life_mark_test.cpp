#include "storage/life_mark.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "tests/support/temporary_directory.h"

namespace batchmill::testing {
namespace {

class LifeMarkTest : public ::testing::Test {
 protected:
  // A process that works on the directory, and how it ends when `end` returns.
  int live(const std::function<void(LifeMark&)>& end) {
    const pid_t child = ::fork();
    if (child == 0) {
      LifeMark mark(directory_.path());
      end(mark);
      ::raise(SIGKILL);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return status;
  }
  void be_killed() {
    live([](LifeMark&) {});
  }
  std::string file() const { return directory_.path() + "/running"; }
  // Replaces what the mark says.
  void rewrite(const std::string& from, const std::string& to) {
    std::ifstream in(file());
    std::string text{std::istreambuf_iterator<char>(in), {}};
    const std::size_t at = text.find(from);
    ASSERT_NE(at, text.npos) << text;
    std::ofstream(file()) << text.replace(at, text.find('\n', at) - at, to);
  }

  TemporaryDirectory directory_;
};

TEST_F(LifeMarkTest, IsGoneAfterAnEndInOrder) {
  {
    const LifeMark first(directory_.path());
    EXPECT_EQ(first.last_end(), LastEnd::kInOrder);
    EXPECT_TRUE(std::filesystem::exists(file()));
  }
  EXPECT_FALSE(std::filesystem::exists(file()));
  EXPECT_EQ(LifeMark(directory_.path()).last_end(), LastEnd::kInOrder);
}

TEST_F(LifeMarkTest, HoldsAKilledProcessToNothing) {
  be_killed();
  EXPECT_EQ(LifeMark(directory_.path()).last_end(), LastEnd::kFromOutside);
}

TEST_F(LifeMarkTest, NamesTheSignalThatAProcessDiedOf) {
  EXPECT_EQ(WTERMSIG(live([](LifeMark&) { std::abort(); })), SIGABRT);
  {
    const LifeMark mark(directory_.path());
    EXPECT_EQ(mark.last_end(), LastEnd::kItself);
    EXPECT_EQ(mark.how(), "by SIGABRT");
  }
  live([](LifeMark&) { ::raise(SIGSEGV); });  // how it ends then is a sanitizer's matter, if any
  EXPECT_EQ(LifeMark(directory_.path()).how(), "by SIGSEGV");
}

TEST_F(LifeMarkTest, NoticesALibraryThatEndsTheProcess) {
  // exit() runs what libraries have to say at the end, which may wait for threads that a forked
  // process lacks: so it is a process of its own, which is told the directory.
  constexpr const char* kDirectory = "LIFE_MARK_TEST_DIRECTORY";
  ::setenv(kDirectory, directory_.path().c_str(), 0);
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const LifeMark mark(std::getenv(kDirectory));
        std::exit(3);
      },
      ::testing::ExitedWithCode(3), "");
  ::unsetenv(kDirectory);
  const LifeMark mark(directory_.path());
  EXPECT_EQ(mark.last_end(), LastEnd::kItself);
  EXPECT_EQ(mark.how(), "by exit()");
}

TEST_F(LifeMarkTest, IsToldOfAnEndThatNobodySees) {
  live([](LifeMark&) {
    LifeMark::note_own_end();
    ::_exit(5);
  });
  EXPECT_EQ(LifeMark(directory_.path()).last_end(), LastEnd::kItself);
}

TEST_F(LifeMarkTest, TakesAKillForWantOfMemoryForTheProcessesOwn) {
  be_killed();
  rewrite("out_of_memory_kills", "out_of_memory_kills 1234567");
  EXPECT_EQ(LifeMark(directory_.path()).last_end(), LastEnd::kItself);
}

TEST_F(LifeMarkTest, HoldsAMachineThatWentDownAgainstNobody) {
  be_killed();
  rewrite("out_of_memory_kills", "out_of_memory_kills 1234567");
  rewrite("boot", "boot of-another-day");
  EXPECT_EQ(LifeMark(directory_.path()).last_end(), LastEnd::kFromOutside);
  std::ofstream(file()).flush();  // it went down while the mark was written
  EXPECT_EQ(LifeMark(directory_.path()).last_end(), LastEnd::kFromOutside);
}

TEST_F(LifeMarkTest, BelievesOnlySoManyKillsWithoutAnAnswer) {
  const auto last_end = [&] {
    LastEnd seen = LastEnd::kInOrder;
    int status = live([&](LifeMark& mark) { ::_exit(static_cast<int>(mark.last_end())); });
    if (WIFEXITED(status)) seen = static_cast<LastEnd>(WEXITSTATUS(status));
    return seen;
  };
  be_killed();
  for (std::uint32_t i = 0; i < LifeMark::kMaxUnanswered; ++i) {
    EXPECT_EQ(last_end(), LastEnd::kFromOutside) << i;
  }
  EXPECT_EQ(last_end(), LastEnd::kItself);
  EXPECT_EQ(last_end(), LastEnd::kItself);
  live([](LifeMark& mark) { mark.note_answer(); });
  EXPECT_EQ(last_end(), LastEnd::kFromOutside);
}

TEST_F(LifeMarkTest, WorksWhereItCannotBeWritten) {
  std::filesystem::create_directory(file());
  EXPECT_NO_THROW(LifeMark(directory_.path()).note_answer());
  EXPECT_TRUE(std::filesystem::is_directory(file()));
}

}  // namespace
}  // namespace batchmill::testing
