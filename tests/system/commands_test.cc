// What people type beside a plain `macaw simulate`: runs that go on or must not, lists.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "core/files.h"
#include "testing/temporary_folder.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;
using testing_support::AllGone;
using testing_support::MacawWith;
using testing_support::Printed;
using testing_support::RunMacaw;
using testing_support::RunShell;
using testing_support::Simulation;
using testing_support::TemporaryFolder;

// Softmax regression over a few generated clients: a run is a second.
constexpr char kSmallConfig[] = R"([run]
name = "small"
rounds = 4
seed = 7
checkpoint_every = 1
[data]
source = "synthetic"
test_fraction = 0.2
[data.synthetic]
clients = 30
[model]
name = "logistic"
[cohort]
size = 10
[workers]
slots = 1
)";

class Commands : public testing::Test {
 protected:
  Commands() : config_(folder_.Write("small.toml", kSmallConfig)), out_(folder_ / "run") {}

  std::string File(const std::string& name) { return *ReadFile(folder_ / name); }
  // Every file of a run but what its processes said, by name.
  std::map<std::string, std::string> Results(const std::string& run) {
    std::map<std::string, std::string> files;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(run)) {
      const std::string name = entry.path().lexically_relative(run).string();
      if (entry.is_regular_file() && !name.starts_with("logs/") && name != ".lock")
        files[name] = *ReadFile(entry.path().string());
    }
    return files;
  }
  int RunSmall(std::vector<std::string> more) {
    more.insert(more.begin(), config_);
    more.insert(more.end(), {"--out", out_});
    Simulation simulation("small", more);
    const int code = simulation.Wait();
    printed_ = simulation.output();
    return code;
  }
  int Resume(std::vector<std::string> more) {
    more.insert(more.begin(), {"--resume", out_});
    Simulation simulation("resumed", more);
    const int code = simulation.Wait();
    printed_ = simulation.output();
    return code;
  }

  const TemporaryFolder folder_;
  const std::string config_, out_;
  std::string printed_;
};

TEST_F(Commands, ARefusedResumeWithMoreRoundsChangesNothing) {
  ASSERT_EQ(RunSmall({"--set", "run.stop.metric=test_accuracy", "--set", "run.stop.at_least=0"}), 0)
      << printed_;
  const auto before = Results(out_);
  EXPECT_NE(Resume({"--rounds", "40"}), 0);
  EXPECT_THAT(printed_, HasSubstr("has stopped"));
  EXPECT_THAT(printed_, Not(HasSubstr("go on with")));
  EXPECT_EQ(Results(out_), before);
}

// Its worker is refused, or another one is waited for until Ctrl-C.
TEST_F(Commands, AResumeThatHasDoneNoRoundLeavesTheResult) {
  const auto rows = [](int first) {
    std::string text = "user,x,label\n";
    for (int i = 0; i < 40; ++i)
      absl::StrAppend(&text, "u", i % 4, ",", i + (i == 0 ? first : 0), ",", i % 3 ? "a" : "b",
                      "\n");
    return text;
  };
  const std::string data = folder_.Write("rows.csv", rows(0));
  ASSERT_EQ(RunSmall({"--set", "data.source=csv", "--set", "data.path=" + data, "--set",
                      "data.client_column=user", "--set", "cohort.size=2"}),
            0)
      << printed_;
  const auto kept = [&] {
    std::map<std::string, std::string> files = Results(out_);
    // What tells of sessions.
    for (const char* name :
         {"epoch", "events.jsonl", "rounds.log", "scratch/worker-0.running", "timeline.json"})
      files.erase(name);
    return files;
  };
  const auto before = kept();
  folder_.Write("rows.csv", rows(1));
  EXPECT_NE(Resume({"--rounds", "40"}), 0);
  EXPECT_THAT(printed_, HasSubstr("differs"));
  EXPECT_EQ(kept(), before);

  folder_.Write("rows.csv", rows(0));
  Simulation waits(
      "waits",
      {"--resume", out_, "--rounds", "40", "--processes", "2", "--set", "server.workers=2"},
      MacawWith("macaw-worker",
                "case \"$*\" in *worker-1*) exec sleep 600;; esac\nexec $real \"$@\"\n"));
  ASSERT_TRUE(waits.WaitForEvent([](const auto& event) {
    return event["event"] == "worker_joined" && event["epoch"] == 3;
  })) << waits.output();
  waits.Signal(SIGINT);
  EXPECT_EQ(waits.Wait(), 130);
  EXPECT_EQ(kept(), before) << waits.output();
}

TEST_F(Commands, AFinishedRunIsNotOfferedToBeResumed) {
  ASSERT_EQ(RunSmall({}), 0) << printed_;
  EXPECT_THAT(printed_, Not(HasSubstr("go on with")));
  EXPECT_NE(Resume({}), 0);
  EXPECT_THAT(printed_, HasSubstr("--rounds"));
  EXPECT_THAT(printed_, Not(HasSubstr("go on with")));
}

// What the server would refuse is refused before the folder of another run is emptied.
TEST_F(Commands, ARefusedRunLeavesTheOneThatItWouldReplace) {
  ASSERT_EQ(RunSmall({}), 0) << printed_;
  const auto before = Results(out_);
  const std::pair<std::vector<std::string>, const char*> refused[] = {
      {{"run.stop={metric = \"nonsense\", at_least = 1}"}, "no such column"},
      {{"evaluation.clients=true", "evaluation.heldout=true"}, "every client has some"},
      {{"algorithm.name=krum", "algorithm.krum.f=9"}, "krum"},
  };
  for (const auto& [settings, why] : refused) {
    std::vector<std::string> more = {"--force"};
    for (const std::string& setting : settings) more.insert(more.end(), {"--set", setting});
    EXPECT_EQ(RunSmall(more), 2) << printed_;
    EXPECT_THAT(printed_, HasSubstr(why));
    EXPECT_EQ(Results(out_), before) << why;
  }
}

// An input is read again after the folder is made, by the workers.
TEST_F(Commands, AForcedRunLeavesTheModelFromWhichItBegins) {
  ASSERT_EQ(RunSmall({}), 0) << printed_;
  const auto before = Results(out_);
  EXPECT_EQ(RunSmall({"--force", "--set", "model.init=" + out_ + "/model.safetensors"}), 2);
  EXPECT_THAT(printed_, testing::AllOf(HasSubstr("model.init is "), HasSubstr("--force would")));
  EXPECT_EQ(Results(out_), before);
}

// Whatever a killed run has left of all that runs write.
TEST_F(Commands, AForcedRunLeavesWhatARunInANewFolderDoes) {
  std::vector<std::string> arguments = {config_,   "--out",    out_, "--rounds",
                                        "1000000", "--owners", "2",  "--trace"};
  for (const char* setting :
       {"algorithm.name=scaffold", "server.durability=commit", "run.client_records=true",
        "evaluation.clients=true", "run.stop={metric = \"train_loss\", patience = 100000}"})
    arguments.insert(arguments.end(), {"--set", setting});
  Simulation killed("killed", arguments);
  ASSERT_TRUE(killed.WaitForEvent([](const auto& event) {
    return event["event"] == "round" && event["round"].template get<int>() >= 3;
  })) << killed.output();
  std::vector<pid_t> children = killed.Children("macaw-worker");
  for (const pid_t server : killed.Children("macaw-server")) children.push_back(server);
  killed.Signal(SIGKILL);
  killed.Wait();
  EXPECT_TRUE(AllGone(children));
  const auto names = [](const std::string& folder) {
    std::set<std::string> found;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder))
      found.insert(entry.path().filename().string());
    return found;
  };
  const std::set<std::string> left = names(out_);
  for (const char* name : {"journal", "owners", "trace", "state", "clients.jsonl", "holdings"})
    EXPECT_TRUE(left.contains(name)) << name << ", or the run has not left much";
  Simulation fresh("fresh", {config_});
  ASSERT_EQ(fresh.Wait(), 0) << fresh.output();
  ASSERT_EQ(RunSmall({"--force"}), 0) << printed_;
  EXPECT_EQ(names(out_), names(fresh.folder()));
}

TEST_F(Commands, AResumeTakesNoFolderOfItsOwn) {
  for (const char* more : {"--out elsewhere", "--force"}) {
    const Printed refused = RunMacaw(absl::StrCat("simulate --resume ", out_, " ", more));
    EXPECT_EQ(refused.exit, 2) << more;
    EXPECT_THAT(refused.text, HasSubstr("excludes")) << more;
  }
}

TEST_F(Commands, AResumeWithMoreRoundsKeepsThemInItsConfiguration) {
  ASSERT_EQ(RunSmall({}), 0) << printed_;
  ASSERT_EQ(Resume({"--rounds", "6"}), 0) << printed_;
  EXPECT_THAT(File("run/config.toml"), HasSubstr("rounds = 6\n"));
  EXPECT_FALSE(FileExists(out_ + "/config.toml.next"));
}

TEST_F(Commands, ARunOfNoRoundsEvaluatesTheModelThatItIsGiven) {
  ASSERT_EQ(RunSmall({}), 0) << printed_;
  const std::string model = out_ + "/model.safetensors", evaluated = folder_ / "evaluated";
  Simulation run("evaluated",
                 {config_, "--rounds", "0", "--set", "model.init=" + model, "--out", evaluated});
  ASSERT_EQ(run.Wait(), 0) << run.output();
  const auto columns = [](const std::string& rows) {
    const auto row = nlohmann::json::parse(rows.substr(rows.rfind('\n', rows.size() - 2) + 1));
    return std::pair(row["test_loss"].get<double>(), row["test_accuracy"].get<double>());
  };
  EXPECT_EQ(columns(*ReadFile(evaluated + "/metrics.jsonl")), columns(File("run/metrics.jsonl")));
  EXPECT_EQ(run.digest(), nlohmann::json::parse(File("run/summary.json"))["model_digest"]);
}

TEST_F(Commands, ARunThatWouldWaitForWorkersThatNobodyStartsIsRefused) {
  EXPECT_EQ(RunSmall({"--set", "server.workers=3"}), 2);
  EXPECT_THAT(printed_, HasSubstr("server.workers = 3, but only 1 worker would be started"));
}

// Reading a configuration again is work, and a second place where it can be read otherwise.
TEST_F(Commands, ServerAndWorkersReadOneFileEachAndWorkersOnlyANodes) {
  ASSERT_EQ(RunSmall({"--processes", "2"}), 0) << printed_;
  const auto read = [this](const std::string& log) {
    std::vector<std::string> files;
    for (const absl::string_view line : absl::StrSplit(File("run/logs/" + log), '\n')) {
      if (line.find("read file=") != line.npos)
        files.emplace_back(line.substr(line.rfind('/') + 1));
    }
    return files;
  };
  EXPECT_THAT(read("server.log"), testing::ElementsAre("config.toml"));
  EXPECT_THAT(read("worker-0.log"), testing::ElementsAre("node.toml"));
  EXPECT_THAT(read("worker-1.log"), testing::ElementsAre("node.toml"));
  EXPECT_THAT(File("run/node.toml"), Not(HasSubstr("[local]")));
}

TEST_F(Commands, ParametersOfAnAlgorithmThatDoesNotRunAreNamed) {
  ASSERT_EQ(RunSmall({"--set", "algorithm.fedprox.mu=0.5"}), 0);
  EXPECT_THAT(printed_, HasSubstr("algorithm.fedprox.mu is not used: the algorithm is fedavg"));
}

TEST_F(Commands, ARunThatLeavesStatesSaysHowMuch) {
  ASSERT_EQ(RunSmall({"--set", "algorithm.name=scaffold"}), 0) << printed_;
  EXPECT_THAT(printed_, testing::ContainsRegex("states +[0-9.]+ kB in .*/run/state/"));
  EXPECT_THAT(printed_, HasSubstr("state.keep=false"));
  EXPECT_EQ(RunMacaw("state verify " + out_).exit, 0);
}

TEST_F(Commands, StatesThatAreNotToBeKeptAreDroppedWhenTheRunIsOver) {
  ASSERT_EQ(RunSmall({"--set", "algorithm.name=scaffold", "--set", "state.keep=false"}), 0)
      << printed_;
  EXPECT_THAT(printed_, HasSubstr("dropped"));
  for (const auto& [name, bytes] : Results(out_))
    EXPECT_THAT(name, Not(testing::EndsWith(".states")));
  EXPECT_TRUE(nlohmann::json::parse(File("run/summary.json")).contains("state_digest"));
  EXPECT_THAT(RunMacaw("state ls " + out_).text, HasSubstr("dropped"));
  EXPECT_NE(Resume({"--rounds", "6"}), 0);
  EXPECT_THAT(printed_, HasSubstr("state.keep = false"));
}

TEST_F(Commands, NoiseIsPlannedWithoutTheStragglersThatAreDropped) {
  const auto printed = [](const std::string& cohort) {
    return RunMacaw("privacy --clients 100 --rounds 10 --epsilon 8 --cohort " + cohort);
  };
  const auto noise = [](const std::string& text) {
    const size_t begin = text.find("\nnoise = ");
    return begin == std::string::npos ? "" : text.substr(begin, text.find('\n', begin + 1) - begin);
  };
  const Printed half = printed("20 --straggler-fraction 0.5");
  EXPECT_EQ(half.exit, 0) << half.text;
  EXPECT_NE(noise(half.text), "");
  EXPECT_EQ(noise(half.text), noise(printed("10").text));
  EXPECT_NE(noise(half.text), noise(printed("20").text));
  EXPECT_THAT(half.text, HasSubstr("size = 20"));
  EXPECT_THAT(half.text, HasSubstr("straggler_policy = \"drop\""));
  EXPECT_THAT(printed("20").text, Not(HasSubstr("straggler")));
  const Printed none_left = printed("20 --straggler-fraction 1");
  EXPECT_NE(none_left.exit, 0);
  EXPECT_THAT(none_left.text, HasSubstr("--straggler-fraction"));
}

TEST_F(Commands, TheListOfModelsHasTheLayers) {
  const Printed models = RunMacaw("models");
  EXPECT_EQ(models.exit, 0);
  EXPECT_THAT(models.text, HasSubstr("lenet5"));
  EXPECT_THAT(models.text, HasSubstr("conv OUT KERNEL [pad P] [stride S] [nobias]"));
  EXPECT_THAT(models.text, HasSubstr("then 120 and 84\n")) << "the fused kernels train it";
  EXPECT_THAT(models.text, testing::ContainsRegex("lstm .*\\(needs LibTorch\\)"));
}

TEST_F(Commands, OutputThatCannotBeWrittenIsAnError) {
  for (const char* command : {"macaw algorithms", "macaw keys --json", "macaw --help",
                              "macaw --version", "macaw-admin --help", "macaw-worker --version"}) {
    const Printed printed = RunShell(absl::StrCat(MACAW_BIN_DIR, "/", command, " > /dev/full"));
    EXPECT_EQ(printed.exit, 1) << command;
    EXPECT_THAT(printed.text, HasSubstr("cannot write to standard output: No space left on device"))
        << command;
  }
  // A usage error keeps its code.
  EXPECT_EQ(RunShell(MACAW_BIN_DIR "/macaw algorithms none > /dev/full").exit, 2);
}

TEST_F(Commands, AFileBeyondTheLimitOfItsSizeIsAnErrorAndNoSignal) {
  const std::string out = folder_.path() + "/keys.json";
  const Printed printed = RunShell("ulimit -f 1; " MACAW_BIN_DIR "/macaw keys --json > " + out);
  EXPECT_EQ(printed.exit, 1);
  EXPECT_THAT(printed.text, HasSubstr("cannot write to standard output: File too large"));
}

TEST_F(Commands, AFolderThatIsGoneIsNamedAsTheReason) {
  const std::string gone = folder_.path() + "/gone";
  const Printed printed = RunShell(absl::StrCat("mkdir ", gone, " && cd ", gone, " && rmdir ", gone,
                                                " && " MACAW_BIN_DIR "/macaw simulate"));
  EXPECT_EQ(printed.exit, 2);
  EXPECT_THAT(printed.text, HasSubstr("cd to one that exists"));
}

// As `macaw keys | head`, from a program that ignores SIGPIPE.
TEST_F(Commands, AReaderThatHasEnoughIsNoError) {
  const Printed printed = RunShell("{ trap '' PIPE; " MACAW_BIN_DIR
                                   "/macaw keys --json; echo code $? >&2; } | head -c 1");
  EXPECT_EQ(printed.text, "{code 0\n");
}

TEST_F(Commands, AnUnknownAlgorithmPointsToPlugins) {
  const Printed unknown = RunMacaw("algorithms heron");
  EXPECT_EQ(unknown.exit, 2);
  EXPECT_THAT(unknown.text, HasSubstr("--plugin"));
  EXPECT_THAT(RunMacaw("algorithms heron --plugin /nowhere/libheron.so").text,
              HasSubstr("/nowhere/libheron.so"));
}

TEST_F(Commands, APluginIsNotCalledAsAWordOfTheLanguage) {
  for (const std::string name :
       {"constexpr", "nullptr", "noexcept", "decltype", "typeid", "wchar_t", "co_await",
        "const_cast", "xor_eq", "class", "fedavg"}) {
    const std::string folder = folder_.path() + "/" + name;
    const Printed made = RunMacaw(absl::StrCat("new ", name, " --cpp --out ", folder));
    EXPECT_EQ(made.exit, 2) << name;
    EXPECT_THAT(made.text, HasSubstr("a plug-in cannot be called")) << name;
    EXPECT_FALSE(std::filesystem::exists(folder)) << name;
  }
}

TEST_F(Commands, PagesOfRulesGoToTheFolderThatIsNamed) {
  const std::string folder = folder_.path() + "/docs/rules";
  EXPECT_EQ(RunMacaw("algorithms --pages " + folder).exit, 0);
  EXPECT_TRUE(fs::exists(folder + "/README.md"));
  EXPECT_TRUE(fs::exists(folder + "/scaffold.md"));
  EXPECT_THAT(RunMacaw("algorithms --pages " + folder + "/README.md/below").text,
              HasSubstr("cannot make the folder"));
  EXPECT_NE(RunMacaw("algorithms fedavg --pages " + folder).exit, 0);
}

TEST_F(Commands, TheDoctorNamesTheFolderOfRunsOnce) {
  fs::create_directories(folder_ / "runs");
  const fs::path before = fs::current_path();
  fs::current_path(folder_.path());
  const Printed doctor = RunMacaw("doctor");
  fs::current_path(before);
  EXPECT_THAT(doctor.text, HasSubstr("/runs"));
  EXPECT_THAT(doctor.text, Not(HasSubstr("/runs/runs")));
}

TEST_F(Commands, DevicesShowsSpeedsRatesAndTurns) {
  const Printed phones = RunMacaw("devices " + config_ + " --set devices.family=phones");
  EXPECT_EQ(phones.exit, 0) << phones.text;
  EXPECT_THAT(phones.text, HasSubstr("phones: 307 phones, 19 networks"));
  EXPECT_THAT(phones.text, HasSubstr("clients  30\n"));
  for (const char* row : {"examples a second", "kB a second down", "seconds of a turn", "  work"})
    EXPECT_THAT(phones.text, HasSubstr(row));
  EXPECT_THAT(phones.text, Not(HasSubstr("% of time there")));

  const std::string table =
      folder_.Write("devices.csv", "samples_per_s,down_kB_s,up_kB_s\n50,200,100\n");
  const std::string presence =
      folder_.Write("presence.csv", "device,on_s,off_s,period_s\na,0,3,4\n");
  const Printed mine = RunMacaw(absl::StrCat(
      "devices ", config_, " --bytes 1e6 --set devices.family=file --set devices.file=", table,
      " --set devices.round_spread=0 --set cohort.sampling=available --set devices.presence=",
      presence));
  EXPECT_EQ(mine.exit, 0) << mine.text;
  EXPECT_THAT(mine.text, testing::ContainsRegex("% of time there +75 +75 +75 +75 +75\n"));
  EXPECT_THAT(mine.text, testing::ContainsRegex("  download +5 +5 +5 +5 +5\n"));
  EXPECT_THAT(mine.text, testing::ContainsRegex("  upload +10 +10 +10 +10 +10\n"));

  const Printed none = RunMacaw("devices " + config_);
  EXPECT_NE(none.exit, 0);
  EXPECT_THAT(none.text, HasSubstr("devices.family"));
}

}  // namespace
}  // namespace macaw
