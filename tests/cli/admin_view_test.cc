#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/admin/view.h"

namespace macaw::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string StatusJson(const std::string& waits_for, const std::string& state = "running") {
  return absl::StrCat(R"({"run": "a", "state": ")", state,
                      R"(", "round": 3, "rounds": 10, "completed": 2, "cohort": 10, "counted": 8,
      "leased": 2, "waits_for": ")",
                      waits_for,
                      R"(", "latest_row": {"round": 2, "test_accuracy": 0.5},
      "nodes": [{"name": "x\u001b[2Jy", "program": "macaw-worker 0.1.7", "slots": 4, "leased": 2, "silent_seconds": 41.2, "late": true,
                 "doing": "trains 2 clients", "owner": true}],
      "quarantine": [{"node": "phone-7", "by": "ada", "reason": "lost"}]})");
}

TEST(AdminView, AStatusHasTheSentenceTheRoundAndTheQuarantine) {
  EXPECT_THAT(*StatusView(StatusJson("8 of 10 clients")),
              AllOf(HasSubstr("8 of 10 clients"), HasSubstr("3 of 10, 2 done"),
                    HasSubstr("test_accuracy 0.5"), HasSubstr("phone-7, by ada: lost")));
}

TEST(AdminView, ANodesNameCannotSteerTheTerminal) {
  const std::string table = *NodesView(StatusJson("nothing"));
  EXPECT_THAT(table, AllOf(HasSubstr("x\\x1b[2Jy"), Not(HasSubstr("\x1b")), HasSubstr("41 s"),
                           HasSubstr("silent; trains 2 clients"), HasSubstr("owns its clients"),
                           HasSubstr(" 0.1.7 ")));
}

// U+009B begins a command to a terminal as the escape and "[" do.
TEST(AdminView, NorCanACharacterBeyondAscii) {
  const std::string json = absl::StrReplaceAll(StatusJson("e\xc2\x9b"
                                                          "2Jvil"),
                                               {{"x\\u001b[2Jy",
                                                 "e\xc2\x9b"
                                                 "2Jvil"},
                                                {"phone-7",
                                                 "e\xc2\x9b"
                                                 "2Jvil"}});
  for (const std::string& text : {*NodesView(json), *StatusView(json), WatchView(json)->text,
                                  *RunsView("[{\"name\": \"e\xc2\x9b"
                                            "2Jvil\"}]"),
                                  SaidView("e\xc2\x9b"
                                           "2Jvil",
                                           false)})
    EXPECT_THAT(text, AllOf(HasSubstr("e\\xc2\\x9b2Jvil"), Not(HasSubstr("\xc2\x9b"))));
}

TEST(AdminView, WithJsonEveryAnswerIsAnObject) {
  EXPECT_EQ(SaidView("the run pauses", false), "the run pauses\n");
  EXPECT_EQ(SaidView("it \"pauses\"", true), "{\"said\":\"it \\\"pauses\\\"\"}\n");
  EXPECT_EQ(CodeView("mc1", "2026", false), "mc1\n");
  EXPECT_EQ(CodeView("mc1", "2026", true), "{\"code\":\"mc1\",\"until\":\"2026\"}\n");
  EXPECT_EQ(FilesView("to", {"a", "b"}, false), "to: a, b\n");
  EXPECT_EQ(FilesView("to", {}, false), "to: nothing is there yet\n");
  EXPECT_EQ(FilesView("to", {"a"}, true), "{\"files\":[\"a\"],\"folder\":\"to\"}\n");
}

TEST(AdminView, AWatchedLineIsNewsUnlessOnlyTimesHaveChanged) {
  const auto key = [](const std::string& waits) { return WatchView(StatusJson(waits))->key; };
  EXPECT_EQ(key("8 of 10 clients: a silent for 41 s"), key("8 of 10 clients: a silent for 42 s"));
  EXPECT_EQ(key("paused for 119 s"), key("paused for 3 s"));
  EXPECT_NE(key("8 of 10 clients"), key("9 of 10 clients"));
  EXPECT_NE(key("8 of 10 clients: a2 silent for 41 s"), key("8 of 10 clients: a3 silent for 41 s"));
  EXPECT_TRUE(WatchView(StatusJson("over", "ended"))->ended);
}

TEST(AdminView, AnotherKindOfAnswerIsAnError) {
  for (const std::string text : {"", "[]", "{}", "{\"state\": 3}"}) {
    EXPECT_FALSE(StatusView(text).ok());
    EXPECT_FALSE(NodesView(text).ok());
    EXPECT_FALSE(WatchView(text).ok());
  }
}

}  // namespace
}  // namespace macaw::cli
