// Client states through the real programs: whoever trains, whatever is killed, every client goes on
// from the state that its last counted turn left, or the run says why it cannot.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "algorithms/around/registry.h"
#include "algorithms/builtin.h"
#include "core/random.h"
#include "tests/system/libtorch.h"
#include "tests/system/state_runs.h"
#include "tests/system/workers.h"

namespace macaw {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing_support::AllGone;
using testing_support::MacawWith;
using testing_support::Plus;
using testing_support::ResumeWithoutPauses;
using testing_support::RunShell;
using testing_support::Simulation;
using testing_support::SlowerStateful;
using testing_support::SmallStateful;
using testing_support::StateBytes;
using testing_support::StateBytesAfter;
using testing_support::StateBytesOf;
using testing_support::StateBytesWithoutPauses;
using testing_support::StopAWorkerUntilItIsLost;

struct Keeping {
  std::string name;
  std::string model = "model.name=logistic";
  std::string setting = "local.epochs=1";
  bool on_libtorch = false;
};
void PrintTo(const Keeping& rule, std::ostream* out) { *out << rule.name; }

class StateLaw : public testing::TestWithParam<Keeping> {};

TEST_P(StateLaw, TheSameBytesForAnyWorkersAndStores) {
  if (GetParam().on_libtorch) MACAW_NEEDS_LIBTORCH();
  // LibTorch takes its time.
  const int clients = GetParam().on_libtorch ? 12 : 40;
  const std::vector<std::string> small =
      Plus(SmallStateful(GetParam().name, "4", GetParam().model, clients),
           {"--set", GetParam().setting});
  const StateBytes one = StateBytesAfter("1x1", Plus(small, {"--processes", "1", "--slots", "1"}));
  ASSERT_EQ(one.model.size(), 64u);
  ASSERT_EQ(one.states.size(), 64u);
  EXPECT_EQ(StateBytesAfter("1x2", Plus(small, {"--processes", "1", "--slots", "2"})), one);
  EXPECT_EQ(StateBytesAfter("3x2", Plus(small, {"--processes", "3", "--slots", "2"})), one);
  EXPECT_EQ(StateBytesAfter("memory", Plus(small, {"--processes", "1", "--slots", "2", "--set",
                                                   "state.store=memory"})),
            one);
  EXPECT_EQ(StateBytesAfter("uncached",
                            Plus(small, {"--processes", "2", "--slots", "1", "--set",
                                         "state.cache_mb=0", "--set", "run.checkpoint_every=3"})),
            one);
  EXPECT_NE(StateBytesAfter("seed", Plus(small, {"--set", "run.seed=8"})).states, one.states);
}

// A network with a hidden layer, for rules that keep its last one or look at what comes before it.
const std::string kTwoLayers = R"(model.layers=["flatten", "linear 8", "relu", "linear 10"])";

std::vector<Keeping> RulesThatKeepAState() {
  return {
      {"scaffold"},
      {"feddyn"},
      {"ditto"},
      {"local"},
      {"fedrep", kTwoLayers, "algorithm.fedrep.head_epochs=1"},
      {"fedper", kTwoLayers},
      {.name = "fedbn",
       .model =
           R"(model.layers=["conv 2 5", "batchnorm", "relu", "maxpool 4", "flatten", "linear 10"])",
       .on_libtorch = true},
      {.name = "moon", .model = kTwoLayers, .on_libtorch = true},
      {.name = "pfedme", .setting = "algorithm.pfedme.personal_steps=2", .on_libtorch = true},
      {.name = "apfl", .setting = "algorithm.apfl.alpha_lr=0.01", .on_libtorch = true}};
}

INSTANTIATE_TEST_SUITE_P(Of, StateLaw, testing::ValuesIn(RulesThatKeepAState()),
                         [](const auto& info) { return info.param.name; });

TEST(StateLaw, IsAskedOfEveryRuleThatKeepsAState) {
  algorithms::Registry registry;
  registry.AddBuiltin(algorithms::BuiltinAlgorithms());
  std::set<std::string> asked, keeping;
  for (const Keeping& rule : RulesThatKeepAState()) asked.insert(rule.name);
  const LayoutPtr layout =
      *ParameterLayout::Make({{.name = "norm.weight", .shape = {1}},
                              {.name = "fc.weight", .shape = {2, 1}},
                              {.name = "norm.running_mean", .shape = {1}, .group = Group::kBuffer}},
                             DType::kF32);
  for (const algorithms::Description* rule : registry.All()) {
    if (rule->has_statistics) continue;  // sums of pixels are large: surroundings.cc has them
    RunPlan run;
    run.clients = 10;
    run.algorithm = *registry.Complete({.name = rule->name});
    const auto schema = algorithms::SchemaOf(*rule, algorithms::SetupOf(run, layout));
    ASSERT_TRUE(schema.ok()) << schema.status();
    if (!schema->state.empty()) keeping.insert(rule->name);
  }
  EXPECT_EQ(asked, keeping);
}

class StateFault : public testing::Test {
 protected:
  std::vector<std::string> With(const std::vector<std::string>& more) const {
    return Plus(arguments_, more);
  }
  void ExpectUndisturbed(const Simulation& simulation) {
    const StateBytes undisturbed = StateBytesWithoutPauses(arguments_);
    EXPECT_EQ(undisturbed.states.size(), 64u);
    EXPECT_EQ(StateBytesOf(simulation), undisturbed);
  }
  static auto Round(uint32_t round) {
    return [round](const nlohmann::json& event) {
      return event["event"] == "round" && event["round"].get<uint32_t>() >= round;
    };
  }
  // A run that was interrupted after its third round, with everything that it keeps. It is long
  // enough if it is still at work when the word of that round has come.
  static std::string Interrupted(const std::vector<std::string>& arguments) {
    Simulation first("first", arguments);
    EXPECT_TRUE(first.WaitForEvent(Round(3)));
    first.Signal(SIGINT);
    EXPECT_EQ(first.Wait(), 130) << first.output();
    return first.folder();
  }
  static std::vector<std::string> Segments(const std::string& folder) {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder + "/state")) {
      if (entry.path().extension() == ".states") files.push_back(entry.path().string());
    }
    return files;
  }

  const std::vector<std::string> arguments_ = SlowerStateful("scaffold", "24");
};

TEST_F(StateFault, AWorkerKilledInEveryRoundChangesNothing) {
  Simulation simulation("killed", With({"--processes", "2", "--slots", "1", "--set",
                                        "emulation.pause_seconds=0.03"}));
  RandomStream random({.seed = 2});
  std::set<pid_t> killed;
  for (int round = 1; round <= 5; ++round) {
    if (!simulation.WaitForANewRound()) break;
    const std::vector<pid_t> workers = simulation.Children("macaw-worker");
    if (workers.empty()) continue;
    const pid_t victim = workers[random.Below(workers.size())];
    if (::kill(victim, SIGKILL) == 0) killed.insert(victim);
  }
  ASSERT_EQ(simulation.Wait(), 0) << simulation.output();
  EXPECT_GE(killed.size(), 3u);
  ExpectUndisturbed(simulation);
}

TEST_F(StateFault, EverythingKilledAndResumedChangesNothing) {
  Simulation first("first",
                   With({"--processes", "2", "--slots", "1", "--set", "run.checkpoint_every=2"}));
  ASSERT_TRUE(first.WaitForEvent(Round(3)));
  std::vector<pid_t> children = first.Children("macaw-worker");
  for (const pid_t server : first.Children("macaw-server")) children.push_back(server);
  first.Signal(SIGKILL);
  EXPECT_NE(first.Wait(), 0);
  EXPECT_TRUE(AllGone(children));
  Simulation second("second",
                    Plus(ResumeWithoutPauses(first), {"--processes", "1", "--slots", "2"}));
  ASSERT_EQ(second.Wait(), 0) << second.output();
  ExpectUndisturbed(second);
}

TEST_F(StateFault, AWorkerWokenTooLateIsNotListenedTo) {
  Simulation simulation(
      "late", With({"--processes", "2", "--slots", "1", "--set", "server.lease_timeout=1", "--set",
                    "emulation.pause_seconds=0.03"}));
  ASSERT_TRUE(simulation.WaitForEvent(Round(1)));
  StopAWorkerUntilItIsLost(simulation);
  ASSERT_EQ(simulation.Wait(), 0) << simulation.output();
  ExpectUndisturbed(simulation);
}

TEST_F(StateFault, AFlippedByteStopsTheRunWithTheClientsName) {
  const std::string folder = Interrupted(SlowerStateful("scaffold", "60"));
  for (const std::string& segment : Segments(folder)) {
    // In the middle of every record: whichever is read first shows it.
    const auto size = static_cast<int64_t>(std::filesystem::file_size(segment));
    std::fstream file(segment, std::ios::in | std::ios::out | std::ios::binary);
    for (int64_t place = 1000; place < size; place += 2000) file.seekp(place).put('\x5a');
  }
  Simulation second("second", {"--resume", folder});
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_THAT(second.output(), AllOf(HasSubstr("the state of client "), HasSubstr("checksum"),
                                     HasSubstr("--state-reset")));
  EXPECT_FALSE(std::filesystem::exists(folder + "/summary.json") &&
               second.summary().value("end", "") == "finished");
}

TEST_F(StateFault, AMissingStoreStopsTheRunWithTheClientsName) {
  const std::string folder = Interrupted(SlowerStateful("scaffold", "60"));
  for (const std::string& segment : Segments(folder)) std::filesystem::remove(segment);
  Simulation second("second", {"--resume", folder});
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_THAT(second.output(),
              AllOf(HasSubstr("the state of client "), HasSubstr("not in the store")));
}

TEST_F(StateFault, AStateIsGivenUpOnRequestAndOnlyThen) {
  // So many clients a round that everybody has a state.
  const auto arguments = Plus(SlowerStateful("scaffold", "14"), {"--set", "cohort.size=40"});
  const std::string folder = Interrupted(arguments);
  Simulation refused("refused", {"--resume", folder, "--state-reset", "1000"});
  EXPECT_NE(refused.Wait(), 0);
  EXPECT_THAT(refused.output(), HasSubstr("--state-reset 1000"));
  Simulation reset("reset", {"--resume", folder, "--state-reset", "7", "--state-reset", "8",
                             "--set", "emulation.pause_probability=0"});
  ASSERT_EQ(reset.Wait(), 0) << reset.output();
  EXPECT_NE(StateBytesOf(reset).model, StateBytesWithoutPauses(arguments).model);
}

// The server dies before it has read anything, and the next one is told again.
TEST_F(StateFault, AStateIsGivenUpAlsoWhereTheServerDiesAtItsStart) {
  const std::string folder =
      Interrupted(Plus(SlowerStateful("scaffold", "14"),
                       {"--set", "cohort.size=40", "--set", "server.durability=commit"}));
  const std::string copy = folder + "-copy";
  ASSERT_EQ(RunShell("cp -a " + folder + " " + copy).exit, 0);
  const std::vector<std::string> how = {"--state-reset", "7", "--set",
                                        "emulation.pause_probability=0"};
  Simulation reset("reset", Plus({"--resume", folder}, how));
  ASSERT_EQ(reset.Wait(), 0) << reset.output();
  Simulation dies("dies", Plus({"--resume", copy}, how),
                  MacawWith("macaw-server",
                            "mkdir $folder/died 2>/dev/null && kill -KILL $$\n"
                            "exec $real \"$@\"\n"));
  ASSERT_EQ(dies.Wait(), 0) << dies.output();
  EXPECT_THAT(dies.output(), HasSubstr("starting it again"));
  EXPECT_EQ(StateBytesOf(dies), StateBytesOf(reset));
}

TEST_F(StateFault, TheStatesOfAnotherRunAreRefused) {
  Simulation first("first", SmallStateful("scaffold"));
  ASSERT_EQ(first.Wait(), 0) << first.output();
  Simulation second("second", Plus(SmallStateful("scaffold"),
                                   {"--set", "state.path=" + first.folder() + "/state"}));
  EXPECT_NE(second.Wait(), 0);
  EXPECT_THAT(second.output(), HasSubstr("belong to another run"));
}

TEST(StateInMemory, NeedsOneWorkerProcessAndCannotBeResumed) {
  const std::vector<std::string> memory =
      Plus(SlowerStateful("scaffold", "24"), {"--set", "state.store=memory"});
  Simulation two("two", Plus(memory, {"--processes", "2"}));
  EXPECT_EQ(two.Wait(), 2);
  EXPECT_THAT(two.output(), AllOf(HasSubstr("workers.processes"), HasSubstr("state.store")));

  Simulation killed("killed", Plus(memory, {"--processes", "1"}));
  ASSERT_TRUE(
      killed.WaitForEvent([](const nlohmann::json& event) { return event["event"] == "round"; }));
  for (const pid_t worker : killed.Children("macaw-worker")) ::kill(worker, SIGKILL);
  EXPECT_EQ(killed.Wait(), 1);
  EXPECT_THAT(killed.output(), HasSubstr("kept the clients' states in its memory and is gone"));

  Simulation resumed("resumed", {"--resume", killed.folder()});
  EXPECT_NE(resumed.Wait(), 0);
  EXPECT_THAT(resumed.output(), AllOf(HasSubstr("in memory"), HasSubstr("cannot be resumed")));
}

TEST(StateInRedis, GivesTheBytesOfTheDiskAlsoWhenKilledAndResumed) {
  if (::access("/usr/bin/redis-server", X_OK) != 0)
    GTEST_SKIP() << "/usr/bin/redis-server is not installed";
  const std::vector<std::string> small =
      Plus(SmallStateful("scaffold", "16"), {"--set", "run.checkpoint_every=2"});
  const StateBytes disk = StateBytesAfter("disk", small);
  const std::vector<std::string> redis =
      Plus(small, {"--processes", "2", "--slots", "1", "--set", "state.store=redis", "--set",
                   "state.url=spawn"});
  EXPECT_EQ(StateBytesAfter("redis", redis), disk);
  Simulation first("first", Plus(redis, {"--set", "emulation.pause_probability=1", "--set",
                                         "emulation.pause_seconds=0.08"}));
  ASSERT_TRUE(first.WaitForEvent([](const nlohmann::json& event) {
    return event["event"] == "round" && event["round"].get<uint32_t>() >= 3;
  }));
  const std::vector<pid_t> servers = first.Children("redis-server");
  EXPECT_EQ(servers.size(), 1u);
  first.Signal(SIGKILL);
  EXPECT_NE(first.Wait(), 0);
  EXPECT_TRUE(AllGone(servers)) << "it must not outlive the run";
  Simulation second("second", ResumeWithoutPauses(first));
  ASSERT_EQ(second.Wait(), 0) << second.output();
  EXPECT_EQ(StateBytesOf(second), disk);
}

TEST(StatelessRun, HasNeitherAStoreNorADigest) {
  Simulation simulation("stateless", SmallStateful("fedavg"));
  ASSERT_EQ(simulation.Wait(), 0) << simulation.output();
  EXPECT_FALSE(std::filesystem::exists(simulation.folder() + "/state"));
  EXPECT_FALSE(simulation.summary().contains("state_digest"));
}

}  // namespace
}  // namespace macaw
