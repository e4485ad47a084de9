// Compression of updates beside the other sections of a configuration, in whole runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/files.h"
#include "testing/program.h"
#include "testing/temporary_folder.h"
#include "tests/system/rows.h"
#include "tests/system/simulation.h"
#include "tests/system/small_run.h"
#include "tests/system/state_runs.h"

namespace macaw {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::Plus;
using testing_support::RowsOf;
using testing_support::RunMacaw;
using testing_support::Simulation;
using testing_support::SmallPrivacy;
using testing_support::SmallRun;
using testing_support::StateBytesOf;
using testing_support::TemporaryFolder;
using testing_support::WithSettings;
using testing_support::WriteConfig;

const std::vector<std::string> kCodedRun = SmallRun(40, 12);

struct CodedBeside {
  const char* name;
  std::vector<std::string> settings;
};
void PrintTo(const CodedBeside& beside, std::ostream* out) { *out << beside.name; }

class Update : public testing::TestWithParam<CodedBeside> {};

TEST_P(Update, GivesTheSameBytesForAnyWorkersAndInAReplay) {
  const std::vector<std::string> settings = Plus(kCodedRun, GetParam().settings);
  const std::string config = WriteConfig("update");
  Simulation one("one", WithSettings(config, settings, {"--processes", "1", "--slots", "1"}));
  ASSERT_EQ(one.Wait(), 0) << one.output();
  Simulation three("three", WithSettings(config, settings, {"--processes", "3", "--slots", "1"}));
  ASSERT_EQ(three.Wait(), 0) << three.output();
  EXPECT_EQ(StateBytesOf(three), StateBytesOf(one));
  const auto replay =
      RunMacaw(absl::StrCat("replay ", three.folder(), " --out ", three.folder(), "-again"));
  EXPECT_EQ(replay.exit, 0) << replay.text;
  EXPECT_THAT(replay.text,
              HasSubstr(absl::StrCat("same       3 rounds, and the same model: ", one.digest())));
}

INSTANTIATE_TEST_SUITE_P(
    Of, Update,
    testing::Values(
        CodedBeside{"TopkUnderAMedianWithHostileClients",
                    {R"(update.codec=["topk 0.1"])", "algorithm.name=median",
                     "attack.kind=sign-flip", "attack.fraction=0.3"}},
        CodedBeside{"Ef21WithHostileClients",
                    {R"(update.codec=["topk 0.1"])", "attack.kind=alie", "attack.fraction=0.3"}},
        CodedBeside{
            "PowerSgdWithHostileClients",
            {R"(update.codec=["powersgd 2"])", "attack.kind=scaling", "attack.fraction=0.3"}},
        CodedBeside{"ChosenRanks",
                    {R"(update.codec=["acpsgd 2"])", "update.adapt=1", "cohort.size=40"}},
        CodedBeside{"ChosenRanksWithHostileClients",
                    {R"(update.codec=["powersgd 2"])", "update.adapt=2", "attack.kind=sign-flip",
                     "attack.fraction=0.3"}},
        CodedBeside{"Ef21OfTensorsThatAreNotFrozen",
                    {R"(update.codec=["topk 0.1"])", R"(model.frozen=["1.*"])"}},
        CodedBeside{
            "ResidualsOfMatricesThatAreNotFrozen",
            {R"(update.codec=["powersgd 2"])", R"(model.frozen=["1.*"])", "cohort.size=40"}},
        CodedBeside{"TopkOfSeveralPhases", {R"(update.codec=["topk 0.1"])", "algorithm.name=mime"}},
        CodedBeside{"TopkOfFedDyn", {R"(update.codec=["topk 0.1"])", "algorithm.name=feddyn"}},
        CodedBeside{
            "MajorityWithHostileClients",
            {R"(update.codec=["majority 0.001"])", "attack.kind=sign-flip", "attack.fraction=0.3"}},
        CodedBeside{"MajorityOfTensorsThatAreNotFrozen",
                    {R"(update.codec=["majority 0.001"])", R"(model.frozen=["1.*"])",
                     "cohort.sampling=poisson"}},
        CodedBeside{"Ef21OfOneClientARound", {R"(update.codec=["topk 0.1"])", "cohort.size=1"}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(UpdateWithPrivacy, LeavesEpsilonAndTheLawAsTheyAre) {
  const std::string config = WriteConfig("private");
  const std::vector<std::string> settings = Plus(kCodedRun, SmallPrivacy());
  const auto epsilons = [](const Simulation& run) {
    std::vector<double> found;
    for (const nlohmann::json& row : RowsOf(run)) found.push_back(row.at("rule_epsilon"));
    return found;
  };
  Simulation plain("plain", WithSettings(config, settings));
  ASSERT_EQ(plain.Wait(), 0) << plain.output();
  ASSERT_EQ(epsilons(plain).size(), 3u);
  for (const char* codec : {R"(update.codec=["bits 8"])", R"(update.codec=["topk 0.1"])"}) {
    SCOPED_TRACE(codec);
    const std::vector<std::string> coded = Plus(settings, {codec});
    Simulation one("one", WithSettings(config, coded, {"--processes", "1", "--slots", "1"}));
    ASSERT_EQ(one.Wait(), 0) << one.output();
    Simulation three("three", WithSettings(config, coded, {"--processes", "3", "--slots", "1"}));
    ASSERT_EQ(three.Wait(), 0) << three.output();
    EXPECT_EQ(three.digest(), one.digest());
    EXPECT_EQ(three.metrics(), one.metrics());
    EXPECT_NE(one.digest(), plain.digest());
    EXPECT_EQ(epsilons(one), epsilons(plain));
  }
}

TEST(UpdateInput, WhatDoesNotGoTogetherIsRefusedBeforeTheRunHasAFolder) {
  const std::string config = WriteConfig("refused");
  struct Refused {
    std::vector<std::string> settings;
    const char* why;
  };
  const std::string topk = R"(update.codec=["topk 0.1"])",
                    low_rank = R"(update.codec=["acpsgd 2"])",
                    majority = R"(update.codec=["majority 0.001"])";
  for (const Refused& refused : std::vector<Refused>{
           {Plus(SmallPrivacy(), {topk, "update.feedback=ef21"}), "[privacy] adds noise"},
           {Plus(SmallPrivacy(), {low_rank}), "[privacy] clips"},
           {{topk, "update.feedback=ef21", "algorithm.name=median"}, "median looks at each"},
           {{low_rank, "algorithm.name=median"}, "of median is no sum"},
           {{low_rank, "algorithm.name=mime"}, "mime has several phases"},
           {{low_rank, "attack.kind=free-rider", "attack.fraction=0.2", "attack.noise=0.1"},
            "attack.noise"},
           {{low_rank, R"(model.frozen=["*.weight"])"}, "no tensor of which factors"},
           {{topk, "algorithm.name=local"}, "whose server uses what clients send"},
           {{majority, "update.feedback=residual"}, "a vote is of no size"},
           {{majority, "algorithm.name=median"}, "median looks at each"},
           {{majority, "algorithm.name=scaffold"}, "mirrors what is counted"},
           {{majority, "attack.kind=alie", "attack.fraction=0.2"}, "sign-flip"}}) {
    Simulation run("refused", WithSettings(config, Plus(kCodedRun, refused.settings)));
    EXPECT_EQ(run.Wait(), 2) << run.output();
    EXPECT_THAT(run.output(), AllOf(HasSubstr("update.codec"), HasSubstr(refused.why)));
    EXPECT_FALSE(FileExists(run.folder())) << refused.why;
  }
}

TEST(UpdateInASweep, IsAKeyLikeOthersWhoseBytesAreCompared) {
  const TemporaryFolder folder;
  folder.Write("run.toml", R"([run]
rounds = 3
[data]
source = "synthetic"
synthetic.clients = 10
[model]
name = "logistic"
[cohort]
size = 5
)");
  const std::string sweep = folder.Write("sweep.toml", R"(base = "run.toml"
seeds = [1, 2]
[keys]
update.codec = [[], ["topk 0.05", "bits 8"]]
)");
  const std::string out = folder / "out";
  const auto swept = RunMacaw(absl::StrCat("sweep ", sweep, " --out ", out, " --quiet"));
  ASSERT_EQ(swept.exit, 0) << swept.text;
  EXPECT_THAT(swept.text, HasSubstr(R"(["topk 0.05","bits 8"])"));
  const auto compared = RunMacaw(absl::StrCat("compare ", out, " --metric total_bytes_up --json"));
  ASSERT_EQ(compared.exit, 0) << compared.text;
  const nlohmann::json rows = nlohmann::json::parse(compared.text)["rows"];
  ASSERT_EQ(rows.size(), 2u) << compared.text;
  const auto bytes = [](const nlohmann::json& row) {
    return row.at("report").at("total_bytes_up").at("mean").get<double>();
  };
  const bool plain_first = rows[0]["values"]["update.codec"].is_null();
  EXPECT_LT(bytes(rows[plain_first ? 1 : 0]), 0.5 * bytes(rows[plain_first ? 0 : 1]));
}

}  // namespace
}  // namespace macaw
