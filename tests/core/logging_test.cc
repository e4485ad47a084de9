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

TEST_F(LoggingTest, AnUnknownFormatIsWarnedOf) {
  ::setenv("MACAW_LOG_FORMAT", "JSON", 1);
  EXPECT_THAT(Lines(), testing::HasSubstr("W macaw-server log: unknown_format "
                                          "MACAW_LOG_FORMAT=JSON: json makes each line an object"));
  ::setenv("MACAW_LOG_FORMAT", "text", 1);
  EXPECT_THAT(Lines(), testing::Not(testing::HasSubstr("unknown_format")));
}

TEST(FormatEnding, TheLastLineHasTheFormOfTheOthers) {
  const auto line = [](LogForm form, absl::string_view text, size_t bytes = 200) {
    std::string written(bytes, '?');
    written.resize(FormatEnding(form, "macaw-server", text, written));
    return written;
  };
  const std::string text = "macaw-server: error: \"a\"\nb\\";
  EXPECT_EQ(line(LogForm::kPlain, text), text + "\n");
  EXPECT_EQ(line(LogForm::kJournal, text), "<3>macaw-server: error: \"a\" b\\\n");
  const std::string as_json = line(LogForm::kJson, text);
  EXPECT_THAT(as_json,
              MatchesRegex("\\{\"time\":\"[0-9-]{10}T[0-9:]{8}\\.[0-9]{3}\\+00:00\",\"level\":"
                           "\"error\",\"process\":\"macaw-server\",\"room\":\"end\",.*\n"));
  EXPECT_THAT(as_json, testing::EndsWith(R"("message":"macaw-server: error: \"a\"\u000ab\\"})"
                                         "\n"));
  EXPECT_EQ(line(LogForm::kPlain, text, 8), "macaw-s\n");
  const std::string cut = line(LogForm::kJson, std::string(200, '"'));
  EXPECT_LE(cut.size(), 200u);
  EXPECT_THAT(cut, testing::EndsWith("\\\"\"}\n"));
  EXPECT_THAT(line(LogForm::kJson, "x\xe9\xff.toml of Zo\xc3\xab"),
              testing::HasSubstr(R"("message":"x\\xe9\\xff.toml of Zoë")"));
}

}  // namespace
}  // namespace macaw
