// What a program is told of tables that it never looks at.
#include "cli/config/other_side.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/config/reader.h"

namespace macaw::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Document FileWith(const std::string& text) { return *ParseDocument(text, "node.toml", "/"); }

TEST(OtherSide, ANodeIsToldWhatTheServerDecides) {
  const std::string own =
      "[node]\nowner = true\n[data]\nsource = \"csv\"\npath = \"rows.csv\"\n[server]\n"
      "listen = \"localhost:47100\"\n";
  EXPECT_EQ(NoteOnServersTables(FileWith(own)), "");
  EXPECT_THAT(NoteOnServersTables(FileWith(own + "[local]\nlr = 3.0\n[round]\ndeadline = 3\n")),
              AllOf(HasSubstr("[local], [round]"), HasSubstr("server's file"),
                    Not(HasSubstr("[data]")), Not(HasSubstr("[node]"))));
  EXPECT_THAT(NoteOnServersTables(FileWith("[server]\nlease_timeout = 3\n")),
              HasSubstr("[server]"));
}

TEST(OtherSide, AFleetsServerIsToldWhatItsNodesDecide) {
  Config config;
  EXPECT_EQ(NoteOnNodesTables(config), "");
  config.node.workers.emulation.pause_probability = 1;
  config.node.workers.processes = 7;  // the server counts them
  EXPECT_THAT(
      NoteOnNodesTables(config),
      AllOf(HasSubstr("[emulation]"), HasSubstr("node's own file"), Not(HasSubstr("[workers]"))));
}

}  // namespace
}  // namespace macaw::cli
