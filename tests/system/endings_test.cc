// How programs end that cannot begin: the code, and one line that names what is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/files.h"
#include "testing/program.h"
#include "testing/temporary_folder.h"

namespace macaw {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;
using testing_support::Printed;
using testing_support::RunShell;

// `line` begins with a program's name; `before` are variables, `after` redirections.
Printed Of(const std::string& line, const std::string& before = "", const std::string& after = "") {
  return RunShell(absl::StrCat(before, " ", MACAW_BIN_DIR, "/", line, " ", after));
}

// A service manager starts nothing again after a 2.
TEST(Endings, WrongArgumentsAreACodeOfTwoAndALineThatNamesThem) {
  const std::pair<const char*, const char*> wrong[] = {
      {"macaw-server --lisen x",
       "macaw-server: error: \"--lisen\" is no option of "
       "\"macaw-server\": did you mean --listen?"},
      {"macaw-server --ready-fd x", "macaw-server: error: Could not convert: --ready-fd = x"},
      {"macaw-server --resume beyond", "macaw-server: error: \"beyond\" is no argument of"},
      {"macaw-worker --nope", "macaw-worker: error: \"--nope\" is no option of \"macaw-worker\""},
      {"macaw-worker enroll CODE",
       "macaw-worker: error: \"enroll\" is no command of \"macaw-worker\": did you mean enrol?"},
      {"macaw-worker enrol CODE", "macaw-worker: error: --server is required"},
      {"macaw simulat x.toml",
       "macaw: error: \"simulat\" is no command of \"macaw\": did you mean simulate?"},
      {"macaw pki initt",
       "macaw: error: \"initt\" is no command of \"macaw pki\": did you mean init?"},
      {"macaw admin --nope", "macaw: error: \"--nope\" is no option of \"macaw admin\""},
      {"macaw admin statu", "is no command of \"macaw admin\": did you mean status?"},
      {"macaw pki", "macaw: error: a command is missing after \"macaw pki\": init, invite, "},
      {"macaw-server --run-dir none --config none.toml --state-reset 3",
       "--state-reset goes with --resume (or --resume-if-begun)"},
      {"macaw-server --run-dir none --config none.toml --run-http 127.0.0.1:1",
       "--run-http requires --standing"},
      {"macaw-server --run-dir none --config none.toml --run-admin bogus",
       "--run-admin requires --standing"},
      {"macaw-server --standing none --listen 127.0.0.1:0 --state-reset 3",
       "--run-starts only: take --state-reset out"},
      {"macaw-server --standing none --listen 127.0.0.1:0 --evaluate-after 5",
       "take --evaluate-after out"},
      {"macaw-server --standing none --listen 127.0.0.1:0 --sync-state x", "take --sync-state out"},
      {"macaw-server --standing none --listen 127.0.0.1:0 --report-fd 1", "take --report-fd out"},
      {"macaw-server --standing none --listen 127.0.0.1:0 --run-dir none", "take --run-dir out"},
      {"macaw-server --standing none --listen 127.0.0.1:0 --config x", "take --config out"},
      {"macaw-server --standing none --listen 127.0.0.1:0 --resume", "take --resume out"},
      {"macaw-server --standing none --listen 127.0.0.1:0 --http-token none",
       "--http-token is of a page: give --http or --run-http"},
      {"macaw-server --standing none", "--standing needs --listen"},
      {"macaw admin watch --run-dir none --from 3", "--from requires --events"},
      {"macaw simulate --roundz 3", "did you mean --rounds? (macaw simulate --help)"},
  };
  for (const auto& [line, said] : wrong) {
    const Printed printed = Of(line, "", "2>&1 >/dev/null");
    EXPECT_EQ(printed.exit, 2) << line << ": " << printed.text;
    EXPECT_THAT(printed.text, HasSubstr(said)) << line;
    EXPECT_THAT(printed.text, MatchesRegex("[^\n]*\n")) << line;
  }
  for (const char* line : {"macaw-server --version", "macaw-worker --help", "macaw pki --help"})
    EXPECT_EQ(Of(line).exit, 0) << line;
}

TEST(Endings, ATokenOfNoPageIsRefusedBeforeTheRunBegins) {
  const testing_support::TemporaryFolder folder;
  const Printed printed = Of(
      absl::StrCat("macaw-server --config " MACAW_SOURCE_DIR "/examples/synthetic.toml --run-dir ",
                   folder / "run", " --listen 127.0.0.1:0 --http-token /nonexistent"));
  EXPECT_EQ(printed.exit, 2) << printed.text;
  EXPECT_THAT(printed.text, HasSubstr("--http-token is of the status page: give --http"));
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
}

// Of commands that compare, 1 says that what they compare differs.
TEST(Endings, OneMeansADifferenceAndNothingElse) {
  const testing_support::TemporaryFolder folder;
  const std::string one = folder.Write("one.csv", "round,loss\n1,0.5\n");
  const std::string two = folder.Write("two.csv", "round,loss\n1,0.25\n");
  const std::string same = absl::StrCat("macaw diff ", one, " ", one);
  EXPECT_EQ(Of(same).exit, 0);
  EXPECT_EQ(Of(absl::StrCat("macaw diff ", one, " ", two)).exit, 1);
  const Printed unwritten = Of(same, "", "> /dev/full");
  EXPECT_EQ(unwritten.exit, 2);
  EXPECT_THAT(unwritten.text, HasSubstr("cannot write to standard output"));
  for (const std::string command : {"verify none.zip", "replay none --out none-again"}) {
    const Printed few = Of("macaw " + command, "ulimit -n 40;");
    EXPECT_EQ(few.exit, 2) << few.text;
    EXPECT_THAT(few.text, HasSubstr("ulimit -n")) << command;
  }
}

TEST(Endings, TheLastLineOfAServerOrWorkerIsALineOfTheLog) {
  for (const std::string program : {"macaw-server", "macaw-worker"}) {
    EXPECT_THAT(Of(program, "JOURNAL_STREAM=8:1").text,
                MatchesRegex("<3>" + program + ": error: [^\n]*\n"));
    const Printed printed = Of(program, "MACAW_LOG_FORMAT=json");
    const nlohmann::json line = nlohmann::json::parse(printed.text, nullptr, false);
    ASSERT_TRUE(line.is_object()) << printed.text;
    EXPECT_EQ(line["level"], "error");
    EXPECT_EQ(line["process"], program);
    EXPECT_THAT(line["message"].get<std::string>(), HasSubstr("is required"));
    EXPECT_TRUE(line.contains("time") && line.contains("room"));
  }
  EXPECT_THAT(Of("macaw pki", "JOURNAL_STREAM=8:1 MACAW_LOG_FORMAT=json").text,
              testing::StartsWith("macaw: error: "))
      << "a command speaks to people";
}

// What a program prints went into the file that was the next to be opened.
TEST(Endings, ClosedStreamsAreNoFilesOfTheRun) {
  const testing_support::TemporaryFolder folder;
  const std::string config = folder.Write(
      "small.toml",
      "[run]\nname = \"small\"\nrounds = 1\n[data]\nsource = \"synthetic\"\n[data.synthetic]\n"
      "clients = 4\n[model]\nname = \"logistic\"\n[cohort]\nsize = 2\n[workers]\nslots = 1\n");
  const std::string run = folder / "run";
  for (const auto& [redirections, code] : {std::pair(">&-", 1), {"2>&-", 0}, {"<&- >&- 2>&-", 1}}) {
    const Printed closed =
        Of(absl::StrCat("macaw simulate ", config, " --force --out ", run), "", redirections);
    EXPECT_EQ(closed.exit, code) << redirections << ": 1 where the answer cannot be written";
    EXPECT_TRUE(FileExists(run + "/summary.json")) << redirections;
    EXPECT_THAT(*ReadFile(run + "/.lock"), MatchesRegex("[0-9]*\n?")) << redirections;
  }
  const Printed said = Of("macaw algorithms", "", ">&-");
  EXPECT_EQ(said.exit, 1);
  EXPECT_THAT(said.text, HasSubstr("cannot write to standard output: Bad file descriptor"));
}

TEST(Endings, ADescriptorThatIsNotOpenIsNamed) {
  for (const char* option : {"--ready-fd", "--report-fd", "--step-fd", "--lock-fd"}) {
    const Printed printed =
        Of(absl::StrCat("macaw-server --config none.toml --run-dir none ", option, " 77"));
    EXPECT_EQ(printed.exit, 2);
    EXPECT_THAT(printed.text, HasSubstr(absl::StrCat(option, " 77: this process has no open")));
  }
}

// A link that leads to itself stands for a folder that may not be entered: root enters all others.
TEST(Endings, AFolderThatCannotBeSeenIsNotCalledMissing) {
  const testing_support::TemporaryFolder folder;
  const std::string loop = folder / "loop", why = "Too many levels of symbolic links";
  std::filesystem::create_symlink(loop, loop);
  for (const std::string command :
       {"log ", "bundle ", "track ", "report ", "watch ", "state ls ", "replay --out none ",
        "compare ", "simulate --resume ", "model show ", "admin status --run-dir ",
        "admin runs --standing ", "audit verify ", "pki list --dir "}) {
    const Printed printed = Of(absl::StrCat("macaw ", command, loop, "/run"));
    EXPECT_NE(printed.exit, 0) << command;
    EXPECT_THAT(printed.text, AllOf(HasSubstr(loop + "/run"), HasSubstr(why))) << command;
    EXPECT_THAT(printed.text, Not(HasSubstr("filesystem error"))) << "no exception's words";
  }
  EXPECT_THAT(Of(absl::StrCat("macaw diff ", loop, "/run ", loop, "/run")).text, HasSubstr(why));
  const Printed node =
      Of(absl::StrCat("macaw-worker renew --server 127.0.0.1:1 --identity ", loop, "/node"));
  EXPECT_THAT(node.text, AllOf(HasSubstr(why), Not(HasSubstr("has not enrolled"))));
}

}  // namespace
}  // namespace macaw
