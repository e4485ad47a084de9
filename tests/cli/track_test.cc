// The process that hands rows to trackers. What the process does is tested in tests/python.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "cli/track/tracking.h"
#include "testing/temporary_folder.h"

namespace macaw::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TrackConfig ToCsv() { return {.to = {"csv"}}; }

class TrackingTest : public ::testing::Test {
 protected:
  ~TrackingTest() override { ::unsetenv("MACAW_PYTHON"); }

  // Tracking starts this script of the shell in place of Python. $4 is the descriptor of messages,
  // $6 the one that ends with the run.
  void PythonIs(const std::string& script) {
    const std::string path = absl::StrCat(folder_.path(), "/python");
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    ::chmod(path.c_str(), 0755);
    ::setenv("MACAW_PYTHON", path.c_str(), 1);
  }
  const std::string& folder() const { return folder_.path(); }

 private:
  testing_support::TemporaryFolder folder_;
};

TEST_F(TrackingTest, StartsNoProcessWithoutTrackers) {
  ::setenv("MACAW_PYTHON", "/no/python", 1);
  absl::StatusOr<Tracking> tracking = Tracking::Start(folder(), {}, Duration(0));
  ASSERT_TRUE(tracking.ok()) << tracking.status();
  EXPECT_TRUE(tracking->Finish());
  EXPECT_THAT(tracking->TakeLines(), IsEmpty());
}

TEST_F(TrackingTest, TellsTheProcessThatTheRunIsOverAndPassesItsWordsOn) {
  PythonIs("echo one >/proc/self/fd/$4; cat /proc/self/fd/$6; echo two >/proc/self/fd/$4; exit 1");
  absl::StatusOr<Tracking> tracking = Tracking::Start(folder(), ToCsv(), std::chrono::hours(1));
  ASSERT_TRUE(tracking.ok()) << tracking.status();
  EXPECT_FALSE(tracking->Finish());
  EXPECT_THAT(tracking->TakeLines(), ElementsAre("one", "two"));
}

TEST_F(TrackingTest, SucceedsWithTheProcess) {
  PythonIs("exit 0");
  absl::StatusOr<Tracking> tracking = Tracking::Start(folder(), ToCsv(), std::chrono::hours(1));
  ASSERT_TRUE(tracking.ok()) << tracking.status();
  EXPECT_TRUE(tracking->Finish());
  EXPECT_THAT(tracking->TakeLines(), IsEmpty());
}

TEST_F(TrackingTest, SaysHowAProcessEndedThatSaidNothing) {
  PythonIs("echo 'SyntaxError: no' >&2; exit 7");
  absl::StatusOr<Tracking> tracking = Tracking::Start(folder(), ToCsv(), std::chrono::hours(1));
  ASSERT_TRUE(tracking.ok()) << tracking.status();
  EXPECT_FALSE(tracking->Finish());
  EXPECT_THAT(tracking->TakeLines(), ElementsAre(HasSubstr("exit code 7: SyntaxError: no")));
}

// As of a Python that is none: 1 is also the code of a process that has said what is left.
TEST_F(TrackingTest, ASilentOneIsNamedWithItsPython) {
  PythonIs("exit 1");
  absl::StatusOr<Tracking> tracking = Tracking::Start(folder(), ToCsv(), std::chrono::hours(1));
  ASSERT_TRUE(tracking.ok()) << tracking.status();
  EXPECT_FALSE(tracking->Finish());
  EXPECT_THAT(tracking->TakeLines(), ElementsAre("the trackers' process (" + folder() +
                                                 "/python) ended early: exit code 1"));
}

TEST_F(TrackingTest, KillsAProcessThatDoesNotEnd) {
  PythonIs("exec sleep 1000");
  absl::StatusOr<Tracking> tracking = Tracking::Start(folder(), ToCsv(), Duration(0));
  ASSERT_TRUE(tracking.ok()) << tracking.status();
  EXPECT_FALSE(tracking->Finish());
  EXPECT_THAT(tracking->TakeLines(), ElementsAre(HasSubstr("killed")));
}

TEST_F(TrackingTest, TakesWhatAProcessSaysAtTheEndHoweverMuchItIs) {
  // A pipe has room for 64 KiB.
  PythonIs(
      "cat /proc/self/fd/$6; i=0; while [ $i -lt 2000 ]; do i=$((i+1)); "
      "echo a line of about a hundred letters, so that all of them together are more than a pipe "
      "has room for $i; done >/proc/self/fd/$4; exit 1");
  absl::StatusOr<Tracking> tracking = Tracking::Start(folder(), ToCsv(), std::chrono::seconds(60));
  ASSERT_TRUE(tracking.ok()) << tracking.status();
  EXPECT_FALSE(tracking->Finish());
  const std::vector<std::string> lines = tracking->TakeLines();
  ASSERT_EQ(lines.size(), 2000u) << lines.back();
  EXPECT_THAT(lines.back(), HasSubstr("for 2000"));
}

TEST_F(TrackingTest, AnInterruptionEndsTheWait) {
  PythonIs("exec sleep 1000");
  absl::StatusOr<Tracking> tracking = Tracking::Start(folder(), ToCsv(), std::chrono::hours(1));
  ASSERT_TRUE(tracking.ok()) << tracking.status();
  absl::StatusOr<PipePair> signals = MakePipe();
  ASSERT_TRUE(signals.ok());
  signals->write.Close();  // readable
  EXPECT_FALSE(tracking->Finish(signals->read.get()));
  EXPECT_THAT(tracking->TakeLines(), ElementsAre(HasSubstr("interrupted")));
}

TEST_F(TrackingTest, NamesTheVariableOfPythonThatCannotBeRun) {
  ::setenv("MACAW_PYTHON", "/no/python", 1);
  const absl::Status status = Tracking::Start(folder(), ToCsv(), Duration(0)).status();
  EXPECT_THAT(status.message(), HasSubstr("/no/python"));
  EXPECT_THAT(status.message(), HasSubstr("MACAW_PYTHON"));
}

TEST_F(TrackingTest, AFolderThatCannotBeWrittenIsNoFaultOfPython) {
  PythonIs("exit 0");
  std::filesystem::create_directories(folder() + "/logs/track.log");  // in the place of the file
  const absl::Status status = Tracking::Start(folder(), ToCsv(), Duration(0)).status();
  EXPECT_THAT(std::string(status.message()),
              ::testing::AllOf(HasSubstr("trackers write into the folder of the run"),
                               HasSubstr("/logs/track.log: Is a directory"),
                               ::testing::Not(HasSubstr("Python"))));
}

TEST_F(TrackingTest, ReadsItsKeysFromTheFolder) {
  std::ofstream(folder() + "/config.toml")
      << "[run]\nname = \"x\"\ntrack = [\"csv\"]\n[run.mlflow]\nuri = \"http://host:1\"\n";
  const absl::StatusOr<TrackConfig> config = ReadTrackConfig(folder());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->to, ElementsAre("csv"));
  EXPECT_EQ(config->mlflow_uri, "http://host:1");
  EXPECT_EQ(config->mlflow_experiment, "macaw");
}

TEST(CheckTrackers, RefusesAPasswordWithoutRepeatingIt) {
  EXPECT_TRUE(CheckTrackers({.mlflow_uri = "https://host/a@b"}).ok());
  EXPECT_TRUE(CheckTrackers({.mlflow_uri = "sqlite:////tmp/runs.db"}).ok());
  const absl::Status status = CheckTrackers({.mlflow_uri = "http://me:secret@host:1/x"});
  EXPECT_THAT(status.message(), HasSubstr("run.mlflow.uri"));
  EXPECT_THAT(status.message(), ::testing::Not(HasSubstr("secret")));
}

}  // namespace
}  // namespace macaw::cli
