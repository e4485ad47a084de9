// Cohorts that follow what earlier rounds told, in whole runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <list>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/system/any_workers.h"
#include "tests/system/killed_runs.h"
#include "tests/system/libtorch.h"
#include "tests/system/rows.h"
#include "tests/system/simulation.h"
#include "tests/system/small_run.h"
#include "tests/system/state_runs.h"

namespace macaw {
namespace {

using testing::HasSubstr;
using testing_support::ExpectTheSameBytesForAnyWorkers;
using testing_support::KillAfter;
using testing_support::Pauses;
using testing_support::Plus;
using testing_support::ResumeWithoutPauses;
using testing_support::RunMacaw;
using testing_support::RunsKilledAfter;
using testing_support::Simulation;
using testing_support::SmallDevices;
using testing_support::SmallRun;
using testing_support::StateBytesOf;
using testing_support::WithSettings;
using testing_support::WriteConfig;

using Settings = std::vector<std::string>;

const Settings kLearnedOnClients = SmallRun(40, 6, {"run.rounds=8"});
const Settings kLearnedOnDevices = Plus(kLearnedOnClients, SmallDevices());

struct Learner {
  const char* name;
  Settings settings;
};
void PrintTo(const Learner& learner, std::ostream* out) { *out << learner.name; }

// The clients of each round, as the log has them.
std::vector<std::set<uint64_t>> CohortsOf(const Simulation& run) {
  std::vector<std::set<uint64_t>> cohorts;
  const auto log = RunMacaw(absl::StrCat("log ", run.folder(), " --json"));
  EXPECT_EQ(log.exit, 0) << log.text;
  for (const absl::string_view line : absl::StrSplit(log.text, '\n', absl::SkipEmpty())) {
    const auto record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!record.is_object() || record.value("record", "") != "round_opened") continue;
    if (record["phase"] != 0) continue;
    std::set<uint64_t>& cohort = cohorts.emplace_back();
    for (const auto& member : record["cohort"]) cohort.insert(member["client"].get<uint64_t>());
  }
  return cohorts;
}

class Learning : public testing::TestWithParam<Learner> {};

TEST_P(Learning, GivesTheSameBytesForAnyWorkersAndInAReplay) {
  ExpectTheSameBytesForAnyWorkers(WriteConfig("learning"), GetParam().settings,
                                  [](const Simulation& one, const Simulation& three) {
                                    const std::vector<std::set<uint64_t>> cohorts = CohortsOf(one);
                                    EXPECT_EQ(CohortsOf(three), cohorts);
                                    EXPECT_EQ(cohorts.size(), 8u);
                                  });
}

TEST_P(Learning, GoesOnAfterKills) {
  const Settings settings = Plus(GetParam().settings, {"run.rounds=20"});
  const std::string config = WriteConfig("kill");
  Simulation whole("whole", WithSettings(config, settings));
  ASSERT_EQ(whole.Wait(), 0) << whole.output();
  const std::list<Simulation> killed = RunsKilledAfter(3, config, Plus(settings, Pauses("0.2")));
  std::list<Simulation> again;
  for (const Simulation& run : killed)
    again.emplace_back(absl::StrCat("again-", again.size()), Settings{"--resume", run.folder()});
  for (Simulation& run : again) {
    KillAfter(run, 5);
    EXPECT_EQ(run.Wait(), 128 + SIGKILL) << run.output();
  }
  for (const Simulation& run : again) {
    Simulation resumed("resumed", ResumeWithoutPauses(run));
    ASSERT_EQ(resumed.Wait(), 0) << resumed.output();
    EXPECT_EQ(StateBytesOf(resumed), StateBytesOf(whole)) << run.folder();
  }
}

// A run that was stopped between rounds and goes on is the run that never stopped.
TEST_P(Learning, GoesOnAfterItsLastRound) {
  const std::string config = WriteConfig("longer");
  Simulation whole("whole", WithSettings(config, GetParam().settings));
  ASSERT_EQ(whole.Wait(), 0) << whole.output();
  Simulation part("part", WithSettings(config, Plus(GetParam().settings, {"run.rounds=4"})));
  ASSERT_EQ(part.Wait(), 0) << part.output();
  Simulation longer("longer", {"--resume", part.folder(), "--rounds", "8"});
  ASSERT_EQ(longer.Wait(), 0) << longer.output();
  EXPECT_EQ(longer.digest(), whole.digest());
  std::vector<std::set<uint64_t>> cohorts = CohortsOf(longer);
  EXPECT_EQ(cohorts, CohortsOf(whole));
}

INSTANTIATE_TEST_SUITE_P(
    By, Learning,
    testing::Values(
        Learner{"Oort",
                Plus(kLearnedOnClients, {"cohort.sampling=oort", "cohort.oort.exploration=0.5"})},
        Learner{"OortOnDevices",
                Plus(kLearnedOnDevices,
                     {"cohort.sampling=oort", "cohort.oort.exploration_decay=0.5",
                      "cohort.oort.pacer_step=2", "cohort.oort.blacklist_rounds=2",
                      "cohort.over_selection=1.5", "round.deadline=60", "round.quorum=0.5"})},
        Learner{"OortWithStates",
                Plus(kLearnedOnClients,
                     {"cohort.sampling=oort", "algorithm.name=scaffold",
                      "cohort.straggler_fraction=0.3", "cohort.straggler_policy=drop"})},
        Learner{"PowerOfChoice", Plus(kLearnedOnClients,
                                      {"cohort.sampling=power-of-choice", "cohort.candidates=15"})},
        Learner{"PowerOfChoiceOfOwners",
                Plus(kLearnedOnClients, {"cohort.sampling=power-of-choice", "workers.owners=3"})},
        Learner{"UpperBound", Plus(kLearnedOnDevices,
                                   {"cohort.sampling=ucb", "algorithm.name=fedadam",
                                    R"(update.codec=["topk 0.1"])", "update.feedback=residual"})},
        Learner{"Cyclic", Plus(kLearnedOnClients, {"cohort.sampling=cyclic"})}),
    [](const auto& info) { return std::string(info.param.name); });

// A loss is then of all phases of the round.
TEST(Learning, OfARuleWithPhasesGivesTheSameBytesForAnyWorkers) {
  MACAW_NEEDS_LIBTORCH();
  const std::string config = WriteConfig("phases");
  const Settings settings = Plus(kLearnedOnClients, {"cohort.sampling=ucb", "algorithm.name=mime",
                                                     "model.name=logistic", "run.rounds=10"});
  Simulation one("one", WithSettings(config, settings, {"--processes", "1", "--slots", "1"}));
  ASSERT_EQ(one.Wait(), 0) << one.output();
  Simulation three("three", WithSettings(config, settings, {"--processes", "3", "--slots", "2"}));
  ASSERT_EQ(three.Wait(), 0) << three.output();
  EXPECT_EQ(StateBytesOf(three), StateBytesOf(one));
  EXPECT_EQ(CohortsOf(three), CohortsOf(one));
}

// Twenty of forty clients a round.
TEST(Learning, CohortsFollowTheLosses) {
  const std::string config = WriteConfig("follow");
  const auto different = [&](const std::string& sampling, const Settings& more) {
    Simulation run("run", WithSettings(config, Plus(Plus(kLearnedOnClients, {"cohort.size=20"}),
                                                    Plus(more, {"cohort.sampling=" + sampling}))));
    EXPECT_EQ(run.Wait(), 0) << run.output();
    const std::vector<std::set<uint64_t>> cohorts = CohortsOf(run);
    std::set<uint64_t> all;
    for (const std::set<uint64_t>& cohort : cohorts) {
      EXPECT_EQ(cohort.size(), 20u);
      all.insert(cohort.begin(), cohort.end());
    }
    return all.size();
  };
  EXPECT_EQ(different("oort", {"cohort.oort.exploration=0", "cohort.oort.exploration_min=0"}), 20u)
      << "it never explores beyond round 1";
  EXPECT_EQ(different("ucb", {}), 40u) << "everybody is asked once first";
  EXPECT_EQ(different("cyclic", {}), 40u);
}

TEST(Learning, IsRefusedWhereItCannotBe) {
  const std::string config = WriteConfig("refused");
  const auto refused = [&](const Settings& settings) {
    Simulation run("refused", WithSettings(config, settings));
    EXPECT_NE(run.Wait(), 0);
    return run.output();
  };
  for (const std::string sampling : {"oort", "power-of-choice", "ucb"}) {
    const Settings learning = {"cohort.sampling=" + sampling};
    EXPECT_THAT(refused(Plus(kLearnedOnDevices, Plus(learning, {"round.mode=buffered"}))),
                HasSubstr("clients of closed rounds"));
    EXPECT_THAT(refused(Plus(kLearnedOnClients, Plus(learning, {"cohort.over_selection=2"}))),
                HasSubstr("needs [devices]"));
    EXPECT_THAT(refused(Plus(kLearnedOnClients,
                             Plus(learning, {"privacy.mechanism=gaussian", "privacy.clip=1",
                                             "privacy.noise=1", "privacy.delta=0.001"}))),
                HasSubstr("drawn independently"));
  }
  EXPECT_THAT(
      refused(Plus(kLearnedOnClients, {"cohort.sampling=power-of-choice", "cohort.candidates=3"})),
      HasSubstr("cohort.candidates is 3"));
  EXPECT_THAT(refused(Plus(kLearnedOnClients, {"cohort.oort.clip=0.5"})),
              HasSubstr("cohort.sampling = \"oort\""));
  EXPECT_THAT(refused(Plus(kLearnedOnClients, {"cohort.sampling=oort", "cohort.oort.penalty=1"})),
              HasSubstr("devices.family"));
  EXPECT_THAT(refused(Plus(kLearnedOnClients, {"cohort.sampling=oort", "cohort.oort.clip=2"})),
              HasSubstr("cohort.oort.clip"));
}

TEST(Learning, AnEstimateSaysThatItDrawsOtherCohorts) {
  const std::string config = WriteConfig("estimate");
  Simulation run("estimate", WithSettings(config, Plus(kLearnedOnDevices, {"cohort.sampling=oort"}),
                                          {"--estimate"}));
  EXPECT_EQ(run.Wait(), 0);
  EXPECT_THAT(run.output(), HasSubstr("drawn uniformly here: \"oort\" follows losses"));
}

TEST(Learning, ATraceOfTheClockIsOfTheConfigurationAlone) {
  Simulation run(
      "run", WithSettings(WriteConfig("trace"), Plus(kLearnedOnDevices, {"cohort.sampling=ucb"})));
  ASSERT_EQ(run.Wait(), 0) << run.output();
  const auto trace = RunMacaw(
      absl::StrCat("timeline ", run.folder(), " --virtual ", run.folder(), "-virtual.json"));
  EXPECT_NE(trace.exit, 0);
  EXPECT_THAT(trace.text, HasSubstr("macaw log"));
}

}  // namespace
}  // namespace macaw
