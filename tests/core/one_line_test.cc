#include "core/one_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/logging.h"

namespace macaw {
namespace {

TEST(OneLine, EscapesWhatBreaksALineOrDrivesATerminal) {
  EXPECT_EQ(OneLine("a\nb\r\tc"), "a\\nb\\r\\tc");
  EXPECT_EQ(OneLine("\x1b[2J\x07\x7f"), "\\x1b[2J\\x07\\x7f");
  EXPECT_EQ(OneLine(std::string("\0", 1)), "\\x00");
  EXPECT_EQ(OneLine("\xc2\x9b"
                    "2J"),
            "\\xc2\\x9b2J");  // the control sequence introducer, beyond ASCII
}

TEST(OneLine, LeavesAllOtherTextAsItIs) {
  for (const std::string text : {"round=7 why=\"it's\" \\n", "Grüße, \xc2\xa0 東京", "\xff\xc2"})
    EXPECT_EQ(OneLine(text), text);
}

// A device once wrote a line of the operator's into the server's log.
TEST(Logger, WritesOneLineWhateverTheMessageHolds) {
  testing::internal::CaptureStderr();
  Logger("server").Warning("declined why=busy\n14:00:00.000 I server: operator by=ada \x1b[2J");
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::ranges::count(log, '\n'), 1);
  EXPECT_THAT(log, testing::HasSubstr("busy\\n14:00"));
  EXPECT_THAT(log, testing::HasSubstr("\\x1b[2J"));
}

}  // namespace
}  // namespace macaw
