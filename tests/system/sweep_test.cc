// Sweeps with real programs: killed, interrupted, side by side.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/files.h"
#include "testing/program.h"
#include "testing/temporary_folder.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::Printed;
using testing_support::Program;
using testing_support::RunMacaw;
using Json = nlohmann::json;

class SweepTest : public testing::Test {
 protected:
  SweepTest() {
    folder_.Write("run.toml", R"(
[run]
rounds = 12
[data]
source = "synthetic"
synthetic.clients = 30
synthetic.max_size = 100
[model]
name = "logistic"
[cohort]
size = 5
)");
  }

  std::string Write(const std::string& text) const {
    return folder_.Write("sweep.toml", "base = \"run.toml\"\n" + text);
  }
  // 24 runs.
  std::string Grid() const {
    return Write(R"(
seeds = [1, 2, 3]
[keys]
local.lr = [0.003, 0.01, 0.03, 0.1]
algorithm.name = ["fedavg", "scaffold"]
)");
  }
  std::string Text(const std::string& file) const {
    const absl::StatusOr<std::string> text = ReadFile(folder_ / file);
    EXPECT_TRUE(text.ok()) << text.status();
    return text.value_or("");
  }
  Printed Sweep(const std::string& file, const std::string& arguments) const {
    return RunMacaw(absl::StrCat("sweep ", file, " ", arguments));
  }
  // Blocks until so many of its jobs are over. False: it has ended before.
  bool WaitForJobs(Program& sweep, size_t jobs) const {
    return sweep.WaitFor(absl::StrCat("  ", jobs, " of "));
  }
  // The processes of `macaw simulate` that this one has started.
  static std::vector<pid_t> ChildrenOf(pid_t process) {
    std::vector<pid_t> children;
    const auto text =
        ReadFile(absl::StrCat("/proc/", process, "/task/", process, "/children")).value_or("");
    for (size_t begin = 0, end; (end = text.find(' ', begin)) != std::string::npos; begin = end + 1)
      children.push_back(std::stoi(text.substr(begin, end - begin)));
    return children;
  }

  const testing_support::TemporaryFolder folder_;
};

TEST_F(SweepTest, AFileWhoseNameIsAnotherFolderNeedsOne) {
  Grid();
  const std::string file = folder_.Write("..toml", Text("sweep.toml"));
  const Printed refused = Sweep(file, "--dry-run");
  EXPECT_EQ(refused.exit, 2) << refused.text;
  EXPECT_THAT(refused.text, HasSubstr("--out"));
  EXPECT_EQ(Sweep(file, "--dry-run --out " + folder_ / "named").exit, 0);
}

TEST_F(SweepTest, KilledTwiceItEndsWithTheSameTable) {
  const std::string file = Grid();
  const Printed plain = Sweep(file, "--jobs 2 --out " + folder_ / "plain");
  ASSERT_EQ(plain.exit, 0) << plain.text;
  EXPECT_THAT(plain.text, HasSubstr("24 of 24 done"));

  const std::vector<std::string> command = {"sweep", file,    "--jobs",
                                            "2",     "--out", folder_ / "killed"};
  for (const size_t jobs : {5, 8}) {
    Program sweep("macaw", command);
    ASSERT_TRUE(WaitForJobs(sweep, jobs)) << sweep.text();
    for (const pid_t job : ChildrenOf(sweep.pid())) ::kill(job, SIGKILL);
    sweep.Signal(SIGKILL);
    EXPECT_EQ(sweep.Wait(), 128 + SIGKILL);
  }
  const Printed shown = RunMacaw("sweep show " + folder_ / "killed");
  EXPECT_THAT(shown.text, HasSubstr("the same command goes on"));
  // A lock file that cannot be opened takes nothing from the table.
  const std::string lock = folder_ / "killed/.lock";
  std::filesystem::rename(lock, lock + ".aside");
  std::filesystem::create_symlink(".lock", lock);
  const Printed unknown = RunMacaw("sweep show " + folder_ / "killed");
  EXPECT_EQ(unknown.exit, 0) << unknown.text;
  EXPECT_THAT(unknown.text, HasSubstr("of 24 runs are over\n"));
  EXPECT_THAT(unknown.text, HasSubstr("note: cannot tell whether a process works in"));
  std::filesystem::rename(lock + ".aside", lock);
  const Printed last = Sweep(file, "--jobs 3 --out " + folder_ / "killed");
  ASSERT_EQ(last.exit, 0) << last.text;
  // What was done is not done again.
  EXPECT_THAT(last.text, testing::Not(HasSubstr("001-seed1")));
  EXPECT_EQ(Text("killed/table.csv"), Text("plain/table.csv"));
  EXPECT_EQ(Text("killed/best.toml"), Text("plain/best.toml"));
  EXPECT_THAT(Text("killed/report.html"), HasSubstr("run-008-seed3"));
  // A run that was removed is made again.
  std::filesystem::remove_all(folder_ / "killed/runs/003-seed2");
  const Printed removed = Sweep(file, "--out " + folder_ / "killed");
  EXPECT_EQ(removed.exit, 0) << removed.text;
  EXPECT_TRUE(FileExists(folder_ / "killed/runs/003-seed2/summary.json"));
  EXPECT_EQ(Text("killed/table.csv"), Text("plain/table.csv"));
  // Once more: nothing is left to do.
  EXPECT_EQ(Sweep(file, "--out " + folder_ / "killed").exit, 0);
  EXPECT_EQ(Text("killed/table.csv"), Text("plain/table.csv"));
}

TEST_F(SweepTest, AJobIsTheSameRunAloneAndTheBestRuns) {
  const Printed sweep = Sweep(Grid(), "--jobs 2 --out " + folder_ / "s");
  ASSERT_EQ(sweep.exit, 0) << sweep.text;
  const auto summary = [&](const std::string& run) {
    return Json::parse(Text(run + "/summary.json"));
  };
  ASSERT_EQ(RunMacaw(absl::StrCat("simulate ", folder_ / "run.toml",
                                  " --set local.lr=0.03 --set algorithm.name=scaffold --seed 2 "
                                  "--slots 2 --out ",
                                  folder_ / "alone"))
                .exit,
            0);
  EXPECT_EQ(summary("alone")["model_digest"], summary("s/runs/007-seed2")["model_digest"]);
  const Printed best =
      RunMacaw(absl::StrCat("simulate ", folder_ / "s/best.toml", " --out ", folder_ / "best"));
  ASSERT_EQ(best.exit, 0) << best.text;
  const Json table = Json::parse(RunMacaw("sweep show --json " + folder_ / "s").text);
  const std::string name = table["best"].get<std::string>() + "-seed1";
  EXPECT_EQ(summary("best")["model_digest"], summary("s/runs/" + name)["model_digest"]);
  EXPECT_EQ(table["done"], 24);
}

TEST_F(SweepTest, InterruptedInOrderItSaysHowToGoOn) {
  const std::string file = Grid();
  Program sweep("macaw", {"sweep", file, "--out", folder_ / "my s"});
  ASSERT_TRUE(WaitForJobs(sweep, 2)) << sweep.text();
  sweep.Signal(SIGINT);
  EXPECT_EQ(sweep.Wait(), 130) << sweep.text();
  const std::string quoted = absl::StrCat("--out '", folder_ / "my s", "'");
  EXPECT_THAT(sweep.text(), HasSubstr(absl::StrCat("go on with  macaw sweep ", file, " ", quoted)));
  const Printed last = Sweep(file, "--json " + quoted);
  EXPECT_EQ(last.exit, 0) << last.text;
  EXPECT_THAT(last.text, AllOf(HasSubstr("{\"event\":\"table\""),
                               HasSubstr("{\"event\":\"end\",\"code\":0,\"go_on\":\"\"}")));
}

TEST_F(SweepTest, AFailedJobIsARowAndTheOthersGoOn) {
  const std::string file = Write("seeds = [1, 2]\n[keys]\nlocal.lr = [1e30, 0.01]\n");
  const Printed sweep = Sweep(file, "--out " + folder_ / "s");
  EXPECT_EQ(sweep.exit, 0) << sweep.text;
  EXPECT_THAT(sweep.text, AllOf(HasSubstr("0 of 2"), HasSubstr("failed: 001-seed1: ")));
  const Json table = Json::parse(RunMacaw("sweep show --json " + folder_ / "s").text);
  EXPECT_EQ(table["best"], "002");
  EXPECT_EQ(table["failed"], 2);
  const Printed compared = RunMacaw("compare " + folder_ / "s");
  EXPECT_EQ(compared.exit, 0) << compared.text;
  EXPECT_THAT(compared.text, HasSubstr("2 of 4 runs failed or are not over"));
  // A failed run is tried again only when that is asked for.
  EXPECT_THAT(Sweep(file, "--out " + folder_ / "s").text,
              testing::Not(HasSubstr("001-seed1  failed")));
  EXPECT_THAT(Sweep(file, "--retry-failed --out " + folder_ / "s").text,
              HasSubstr("001-seed1  failed"));
}

TEST_F(SweepTest, WhereNothingIsTheBestAnOlderBestIsRemoved) {
  const std::string file = Write("[keys]\nlocal.lr = [1e30, 2e30]\n");
  EXPECT_EQ(Sweep(file, "--out " + folder_ / "s").exit, 1);
  folder_.Write("s/best.toml", "# of another metric\n");
  EXPECT_EQ(Sweep(file, "--out " + folder_ / "s").exit, 1);
  EXPECT_FALSE(FileExists(folder_ / "s/best.toml"));
}

TEST_F(SweepTest, AHalvedRunIsThatOfAnUnbrokenOne) {
  const std::string file = Write(R"(
seeds = [1, 2]
metric = "test_loss"
halving = {rounds = [3, 6, 12], factor = 2}
[keys]
local.lr = [0.003, 0.01, 0.03]
local.lr_schedule.kind = ["cosine"]
)");
  const Printed sweep = Sweep(file, "--jobs 2 --out " + folder_ / "s");
  ASSERT_EQ(sweep.exit, 0) << sweep.text;
  const Json table = Json::parse(RunMacaw("sweep show --json " + folder_ / "s").text);
  std::vector<int> rounds;
  for (const Json& row : table["rows"]) rounds.push_back(row["rounds"]);
  EXPECT_EQ(rounds, (std::vector<int>{12, 6, 3}));
  const std::string best = table["best"].get<std::string>() + "-seed2";
  ASSERT_EQ(RunMacaw(absl::StrCat("simulate ", folder_ / ("s/jobs/" + best + ".toml"), " --out ",
                                  folder_ / "alone"))
                .exit,
            0);
  EXPECT_EQ(Text("alone/model.safetensors"), Text("s/runs/" + best + "/model.safetensors"));
  EXPECT_EQ(Text("alone/metrics.jsonl"), Text("s/runs/" + best + "/metrics.jsonl"));

  // Killed on a later rung, it decides the same.
  Program killed("macaw", {"sweep", file, "--out", folder_ / "k"});
  ASSERT_TRUE(killed.WaitFor("to round 6")) << killed.text();
  killed.Signal(SIGKILL);
  killed.Wait();
  ASSERT_EQ(Sweep(file, "--out " + folder_ / "k").exit, 0);
  EXPECT_EQ(Text("k/table.csv"), Text("s/table.csv"));
}

// The last round of a rung is evaluated because it is the last, so a run that stops by it goes on.
TEST_F(SweepTest, AStopByTheLastRoundOfARungDoesNotHold) {
  const Printed sweep = Sweep(Write(R"(
seeds = [1]
metric = "test_loss"
halving = {rounds = [4, 6, 12], factor = 2}
[keys]
local.lr = [0.003, 0.03]
evaluation.every = [3]
run.stop.metric = ["bytes_down"]
run.stop.patience = [1]
)"),
                              "--out " + folder_ / "s");
  ASSERT_EQ(sweep.exit, 0) << sweep.text;
  const Json table = Json::parse(RunMacaw("sweep show --json " + folder_ / "s").text);
  const std::string best = table["best"].get<std::string>() + "-seed1";
  ASSERT_EQ(RunMacaw(absl::StrCat("simulate ", folder_ / ("s/jobs/" + best + ".toml"), " --out ",
                                  folder_ / "alone"))
                .exit,
            0);
  const Json halved = Json::parse(Text("s/runs/" + best + "/summary.json")),
             alone = Json::parse(Text("alone/summary.json"));
  EXPECT_EQ(alone["end"], "stopped");
  EXPECT_EQ(alone["rounds"], 6) << "as many bytes as in round 3";
  EXPECT_EQ(halved["rounds"], 6);
  EXPECT_EQ(halved["model_digest"], alone["model_digest"]);
}

// It has not stopped: with its rung's last round it has done all that it was asked for.
TEST_F(SweepTest, APrivateRunIsOverWhenARungHasSpentItsBudget) {
  const std::string base = *ReadFile(folder_ / "run.toml") + R"(
sampling = "poisson"
weight = "uniform"
[privacy]
mechanism = "gaussian"
clip = 1.0
noise = 2.0
delta = 0.001
)";
  const std::string file = folder_.Write("private.toml", base);
  ASSERT_EQ(RunMacaw(absl::StrCat("simulate ", file, " --rounds 4 --out ", folder_ / "four")).exit,
            0);
  const double epsilon = Json::parse(Text("four/summary.json"))["final"]["rule_epsilon"];
  folder_.Write("private.toml",
                absl::StrCat(base, "[run.stop]\nmetric = \"rule_epsilon\"\nat_least = ",
                             epsilon + 1e-3, "\n"));
  const std::string sweep = folder_.Write("sweep.toml", R"(
base = "private.toml"
seeds = [1]
metric = "test_loss"
halving = {rounds = [4, 8, 12], factor = 2}
[keys]
local.lr = [0.003, 0.03]
)");
  const Printed done = Sweep(sweep, "--out " + folder_ / "s");
  ASSERT_EQ(done.exit, 0) << done.text;
  const Json table = Json::parse(RunMacaw("sweep show --json " + folder_ / "s").text);
  const std::string best = table["best"].get<std::string>() + "-seed1";
  EXPECT_EQ(Json::parse(Text("s/runs/" + best + "/summary.json"))["rounds"], 4);
}

// A kill between a run's result and its last checkpoint.
TEST_F(SweepTest, ARungThatLacksItsCheckpointIsDoneAgain) {
  const std::string file = Write(R"(
seeds = [1, 2]
metric = "test_loss"
halving = {rounds = [4, 6], factor = 2}
[keys]
local.lr = [0.003, 0.03]
evaluation.every = [3]
run.checkpoint_every = [3]
)");
  ASSERT_EQ(Sweep(file, "--out " + folder_ / "plain").exit, 0);
  const Json table = Json::parse(RunMacaw("sweep show --json " + folder_ / "plain").text);
  const std::string best = table["best"].get<std::string>();
  namespace fs = std::filesystem;
  fs::copy(folder_ / "plain", folder_ / "killed", fs::copy_options::recursive);
  for (const std::string seed : {"1", "2"}) {
    const std::string job = best + "-seed" + seed, run = folder_ / ("killed/runs/" + job);
    ASSERT_EQ(RunMacaw(absl::StrCat("simulate ", folder_ / ("plain/jobs/" + job + ".toml"),
                                    " --rounds 4 --force --out ", run))
                  .exit,
              0);
    ASSERT_TRUE(fs::remove(folder_ / ("killed/results/" + job + ".json")));
    ASSERT_TRUE(fs::remove(run + "/checkpoints/round-00000004.safetensors"));
    if (seed == "2") {
      ASSERT_TRUE(fs::remove(run + "/checkpoints/round-00000003.safetensors"));
    }
  }
  ASSERT_EQ(Sweep(file, "--out " + folder_ / "killed").exit, 0);
  EXPECT_EQ(Text("killed/table.csv"), Text("plain/table.csv"));
  for (const std::string seed : {"1", "2"}) {
    const std::string rows = "/runs/" + best + "-seed" + seed + "/metrics.jsonl";
    EXPECT_EQ(Text("killed" + rows), Text("plain" + rows)) << seed;
  }
}

TEST_F(SweepTest, RefusesBeforeAnythingBegins) {
  const std::string out = folder_ / "s";
  const Printed wrong = Sweep(Write("[keys]\nlocal.lrr = [1]\n"), "--out " + out);
  EXPECT_EQ(wrong.exit, 2);
  EXPECT_THAT(wrong.text, AllOf(HasSubstr("sweep.toml:3"), HasSubstr("local.lr?")));
  EXPECT_FALSE(FileExists(out));
  const Printed dry = Sweep(Grid(), "--dry-run --out " + out);
  EXPECT_EQ(dry.exit, 0);
  EXPECT_THAT(dry.text, HasSubstr("008-seed3  algorithm.name scaffold, local.lr 0.1"));
  EXPECT_FALSE(FileExists(out));
  EXPECT_EQ(RunMacaw("sweep show " + out).exit, 2);
  for (const char* jobs : {"0", "-1", "nan", "1e999"}) {
    const Printed refused = Sweep(Grid(), absl::StrCat("--jobs ", jobs, " --out ", out));
    EXPECT_EQ(refused.exit, 2) << jobs;
    EXPECT_THAT(refused.text, HasSubstr(absl::StrCat("must be a number above 0, and is ", jobs)));
  }
}

// A single job runs whatever it takes; a second one only where it fits.
TEST_F(SweepTest, JobsThatDoNotFitIntoTheMemoryRunOneAfterTheOther) {
  const Printed sweep = Sweep(Grid(), "--jobs 2 --memory 0.001 --out " + folder_ / "s");
  EXPECT_EQ(sweep.exit, 0) << sweep.text;
  EXPECT_THAT(sweep.text, AllOf(HasSubstr("only 1 at a time"), HasSubstr("24 of 24 done")));
}

}  // namespace
}  // namespace macaw
