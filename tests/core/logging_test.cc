#include "core/logging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>

namespace macaw {
namespace {

using testing::MatchesRegex;

class LoggingTest : public testing::Test {
 protected:
  LoggingTest() { AsATerminalSeesIt(); }
  ~LoggingTest() override {
    AsATerminalSeesIt();
    InitLogging("test");  // for the tests after this one
  }
  static void AsATerminalSeesIt() {
    ::unsetenv("JOURNAL_STREAM");
    ::unsetenv("MACAW_LOG_FORMAT");
  }
  static std::string Lines() {
    testing::internal::CaptureStderr();
    InitLogging("macaw-server");
    Logger("queue").Info("begins run=one");
    Logger("queue").Warning("a \"forged\"\nline\\");
    return testing::internal::GetCapturedStderr();
  }
};

TEST_F(LoggingTest, ALineHasDateZoneLevelProcessAndRoom) {
  EXPECT_THAT(Lines(),
              MatchesRegex("[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}\\.[0-9]{3}[+-][0-9]{2}:[0-9]{2} I "
                           "macaw-server queue: begins run=one\n.* W macaw-server queue: a .*\n"));
}

TEST_F(LoggingTest, UnderJournaldALineHasItsPriority) {
  ::setenv("JOURNAL_STREAM", "8:1234", 1);
  EXPECT_THAT(Lines(), MatchesRegex("<6>queue: begins run=one\n<4>queue: a [^\n]*\n"));
}

TEST_F(LoggingTest, AsJsonALineIsAnObject) {
  ::setenv("MACAW_LOG_FORMAT", "json", 1);
  const std::string lines = Lines();
  EXPECT_THAT(lines,
              MatchesRegex("\\{\"time\":\"[^\"]+\",\"level\":\"info\",\"process\":\"macaw-server\","
                           "\"room\":\"queue\",\"message\":\"begins run=one\"\\}\n"
                           "\\{.*\"level\":\"warning\".*\\}\n"));
  EXPECT_THAT(lines, testing::HasSubstr(R"(a \"forged\")"));
}

// A file's name may have any bytes.
TEST_F(LoggingTest, AsJsonALineIsUtf8) {
  ::setenv("MACAW_LOG_FORMAT", "json", 1);
  testing::internal::CaptureStderr();
  InitLogging("macaw-server");
  Logger("queue").Info("x\xe9\"\xff.toml of Zo\xc3\xab\xc3");
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_THAT(line, testing::HasSubstr(R"("message":"x\\xe9\"\\xff.toml of Zoë\\xc3")"));
}

}  // namespace
}  // namespace macaw
