// rounds.log of real runs, and what `macaw log` makes of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "core/files.h"
#include "testing/program.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

using testing::HasSubstr;
using testing_support::Printed;
using testing_support::RunMacaw;
using testing_support::Simulation;
using testing_support::WriteConfig;

std::vector<nlohmann::json> LogOf(const std::string& folder) {
  const Printed printed = RunMacaw("log --json " + folder);
  EXPECT_EQ(printed.exit, 0) << printed.text;
  std::vector<nlohmann::json> lines;
  for (const absl::string_view line : absl::StrSplit(printed.text, '\n', absl::SkipEmpty())) {
    lines.push_back(nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false));
    EXPECT_TRUE(lines.back().is_object()) << line;
    EXPECT_EQ(lines.back()["seq"], lines.size());
  }
  return lines;
}

// Those of a kind that count, without what depends on who trained, when.
std::vector<nlohmann::json> Lasting(const std::vector<nlohmann::json>& lines,
                                    const std::string& kind) {
  std::vector<nlohmann::json> found;
  for (nlohmann::json line : lines) {
    if (line["record"] != kind || line.contains("undone")) continue;
    for (const char* name : {"seq", "t", "seconds", "requeued"}) line.erase(name);
    found.push_back(std::move(line));
  }
  return found;
}

TEST(Log, OfOneWorkerAndOfThreeOpenAndCloseTheSameRounds) {
  const std::string config = WriteConfig("workers");
  Simulation one("one", {config, "--processes", "1"});
  ASSERT_EQ(one.Wait(), 0) << one.output();
  Simulation three("three", {config, "--processes", "3", "--slots", "1"});
  ASSERT_EQ(three.Wait(), 0) << three.output();
  const auto a = LogOf(one.folder()), b = LogOf(three.folder());
  EXPECT_EQ(Lasting(a, "node_joined").size(), 1u);
  EXPECT_EQ(Lasting(b, "node_joined").size(), 3u);
  EXPECT_EQ(Lasting(a, "round_opened").size(), 3u);
  EXPECT_EQ(Lasting(a, "round_opened"), Lasting(b, "round_opened"));
  EXPECT_EQ(Lasting(a, "closed"), Lasting(b, "closed"));
  EXPECT_EQ(Lasting(a, "run_ended"), Lasting(b, "run_ended"));
  EXPECT_EQ(Lasting(a, "run_ended")[0]["model"], one.digest());
}

TEST(Log, OfARunThatWasKilledAndGoesOnTellsEachRoundOnce) {
  const std::string config = WriteConfig("killed");
  // Long enough that the run is at work when the word of its third round has come.
  Simulation whole("whole", {config, "--rounds", "100"});
  ASSERT_EQ(whole.Wait(), 0) << whole.output();

  Simulation first("first", {config, "--rounds", "100", "--set", "run.checkpoint_every=2"});
  ASSERT_TRUE(first.WaitForEvent([](const nlohmann::json& event) {
    return event["event"] == "round" && event["round"] == 3;
  }));
  std::vector<pid_t> children = first.Children("macaw-worker");
  for (const pid_t server : first.Children("macaw-server")) children.push_back(server);
  first.Signal(SIGKILL);
  for (const pid_t child : children) ::kill(child, SIGKILL);
  first.Wait();
  ASSERT_TRUE(testing_support::AllGone(children));
  Simulation second("second", {"--resume", first.folder()});
  ASSERT_EQ(second.Wait(), 0) << second.output();

  const auto log = LogOf(first.folder()), expected = LogOf(whole.folder());
  const auto sessions = Lasting(log, "run_opened");
  ASSERT_EQ(sessions.size(), 2u);
  EXPECT_EQ(sessions[1]["epoch"], 2);
  EXPECT_EQ(sessions[0]["configuration"], sessions[1]["configuration"]);
  EXPECT_EQ(Lasting(log, "closed"), Lasting(expected, "closed"));
  EXPECT_EQ(Lasting(log, "round_opened"), Lasting(expected, "round_opened"));
  EXPECT_EQ(Lasting(log, "run_ended"), Lasting(expected, "run_ended"));
}

TEST(Log, IsPrintedAsATableAndByRound) {
  Simulation run("run", {WriteConfig("table"), "--rounds", "2"});
  ASSERT_EQ(run.Wait(), 0) << run.output();
  const Printed table = RunMacaw("log " + run.folder());
  EXPECT_EQ(table.exit, 0);
  for (const char* word : {"run_opened", "node_joined", "worker-0", "round_opened", "leased",
                           "accepted", "closed", "evaluated", "finished after 2 rounds"}) {
    EXPECT_THAT(table.text, HasSubstr(word));
  }
  const Printed second = RunMacaw("log --json --round 2 " + run.folder());
  EXPECT_EQ(second.exit, 0);
  for (const absl::string_view line : absl::StrSplit(second.text, '\n', absl::SkipEmpty()))
    EXPECT_EQ(nlohmann::json::parse(line)["round"], 2) << line;
  EXPECT_THAT(RunMacaw("log --round 9 " + run.folder()).text, HasSubstr("ends with round 2"));
  EXPECT_EQ(RunMacaw("log --round 9 " + run.folder()).exit, 2);
}

TEST(Log, IsFollowedUntilTheRunHasEnded) {
  Simulation run("run", {WriteConfig("follow"), "--rounds", "4"});
  ASSERT_TRUE(run.WaitForEvent([](const auto& event) { return event["event"] == "part"; }));
  const Printed followed = RunMacaw("log -f " + run.folder());
  EXPECT_EQ(followed.exit, 0) << followed.text;
  EXPECT_EQ(run.Wait(), 0) << run.output();
  EXPECT_EQ(followed.text, RunMacaw("log " + run.folder()).text);
}

// Such as a copy of its folder.
TEST(Log, IsNotFollowedWhereNoProcessWorksOnTheRun) {
  Simulation run("run", {WriteConfig("unfollowed"), "--rounds", "1"});
  ASSERT_EQ(run.Wait(), 0) << run.output();
  const std::string path = run.folder() + "/rounds.log", lock = run.folder() + "/.lock";
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);  // the end is torn
  const auto followed = [&] {
    return testing_support::RunShell("timeout 60 " MACAW_BIN_DIR "/macaw log -f " + run.folder());
  };
  for (const bool there : {true, false}) {
    if (!there) std::filesystem::remove(lock);
    const Printed printed = followed();
    EXPECT_EQ(printed.exit, 0) << there;
    EXPECT_THAT(printed.text, HasSubstr("no process works on it")) << there;
  }
  std::filesystem::create_symlink(".lock", lock);
  const Printed unknown = followed();
  EXPECT_EQ(unknown.exit, 1);
  EXPECT_THAT(unknown.text, HasSubstr(lock + " cannot be opened"));
}

TEST(Log, OfARunThatWasInterruptedAndWentOnRepeatsItToTheSameModel) {
  // So many rounds that it is interrupted long before the last one.
  Simulation run("run", {WriteConfig("replay"), "--rounds", "200", "--processes", "2", "--slots",
                         "1", "--set", "algorithm.name=scaffold", "--set", "model.name=logistic"});
  ASSERT_TRUE(run.WaitForEvent([](const auto& event) { return event["event"] == "round"; }));
  run.Signal(SIGINT);
  run.Wait();
  Simulation resumed("resumed", {"--resume", run.folder()});
  ASSERT_EQ(resumed.Wait(), 0) << resumed.output();

  const std::string again = run.folder() + "-again";
  const Printed same = RunMacaw("replay " + run.folder() + " --out " + again + " --processes 1");
  EXPECT_EQ(same.exit, 0) << same.text;
  EXPECT_THAT(same.text, HasSubstr("same       200 rounds, and the same model: " + run.digest()));
  EXPECT_EQ(RunMacaw("replay " + run.folder() + " --out " + again).exit, 2) << "it is there";
  EXPECT_NE(RunMacaw("simulate --resume " + again + " --rounds 201").exit, 0);
  // A simulation that fails (with 1) is no difference.
  const std::string loop = run.folder() + "-loop";
  std::error_code ignored;
  std::filesystem::remove(loop, ignored);
  std::filesystem::create_symlink(loop, loop);
  EXPECT_EQ(RunMacaw("simulate " + run.folder() + "/config.toml --out " + loop + "/x").exit, 1);
  const Printed failed = RunMacaw("replay " + run.folder() + " --out " + loop + "/x");
  EXPECT_EQ(failed.exit, 2) << failed.text;
  EXPECT_THAT(failed.text, HasSubstr("Too many levels of symbolic links"));

  // Somebody has changed the configuration since.
  const std::string config = run.folder() + "/config.toml";
  ASSERT_TRUE(
      AtomicWriteFile(config, absl::StrReplaceAll(*ReadFile(config), {{"lr = 0.05", "lr = 0.06"}}))
          .ok());
  const Printed other = RunMacaw("replay " + run.folder() + " --force --out " + again);
  EXPECT_EQ(other.exit, 1) << other.text;
  EXPECT_THAT(other.text, HasSubstr("they differ in round 1: it ends with another model; the "
                                    "configuration is another one"));
}

TEST(Log, OfWhatIsNoRunOrIsDamagedIsRefusedByName) {
  EXPECT_EQ(RunMacaw("log /nowhere").exit, 2);
  EXPECT_THAT(RunMacaw("log /nowhere").text, HasSubstr("/nowhere is not the folder of a run"));
  Simulation run("run", {WriteConfig("damage"), "--rounds", "1"});
  ASSERT_EQ(run.Wait(), 0) << run.output();
  const std::string path = run.folder() + "/rounds.log";
  std::string bytes = *ReadFile(path);
  bytes[bytes.size() / 2] ^= 4;
  ASSERT_TRUE(AtomicWriteFile(path, bytes).ok());
  const Printed damaged = RunMacaw("log " + run.folder());
  EXPECT_NE(damaged.exit, 0);
  EXPECT_THAT(damaged.text, HasSubstr(path));
  EXPECT_THAT(damaged.text, HasSubstr("is damaged"));
  EXPECT_THAT(damaged.text, HasSubstr("run_opened")) << "what is whole before it is shown";
  ASSERT_TRUE(AtomicWriteFile(path, std::string("something else")).ok());
  EXPECT_THAT(RunMacaw("log " + run.folder()).text, HasSubstr("is not a log of rounds"));
  ASSERT_EQ(::unlink(path.c_str()), 0);
  EXPECT_EQ(RunMacaw("log " + run.folder()).exit, 2);
  EXPECT_EQ(RunMacaw("replay " + run.folder() + " --out " + run.folder() + "-again").exit, 2);
}

}  // namespace
}  // namespace macaw
