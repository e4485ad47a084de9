// The model without each client of a round, in whole runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/files.h"
#include "testing/temporary_folder.h"
#include "tests/system/any_workers.h"
#include "tests/system/killed_runs.h"
#include "tests/system/rows.h"
#include "tests/system/simulation.h"
#include "tests/system/small_run.h"
#include "tests/system/state_runs.h"

namespace macaw {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing_support::ExpectTheSameBytesForAnyWorkers;
using testing_support::Pauses;
using testing_support::Plus;
using testing_support::ResumeWithoutPauses;
using testing_support::RunMacaw;
using testing_support::RunProgram;
using testing_support::RunsKilledAfter;
using testing_support::Simulation;
using testing_support::Slurp;
using testing_support::SmallDevices;
using testing_support::SmallPrivacy;
using testing_support::SmallRun;
using testing_support::StateBytesOf;
using testing_support::WithSettings;
using testing_support::WriteConfig;

using Settings = std::vector<std::string>;

const Settings kLeavingOut = SmallRun(20, 5, {"run.rounds=4", "evaluation.leave_one_out=2"});

std::string ContributionsOf(const Simulation& run) {
  return Slurp(run.folder() + "/contributions.jsonl");
}

std::vector<nlohmann::json> LinesOf(const Simulation& run) {
  std::vector<nlohmann::json> lines;
  const std::string text = ContributionsOf(run);
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty()))
    lines.push_back(nlohmann::json::parse(line));
  return lines;
}

struct LeavingOut {
  const char* name;
  Settings settings;
};
void PrintTo(const LeavingOut& leaving_out, std::ostream* out) { *out << leaving_out.name; }

class Contribution : public testing::TestWithParam<LeavingOut> {};

TEST_P(Contribution, IsTheSameForAnyWorkersAndInAReplay) {
  ExpectTheSameBytesForAnyWorkers(WriteConfig("contribution"),
                                  Plus(kLeavingOut, GetParam().settings),
                                  [](const Simulation& one, const Simulation& three) {
                                    EXPECT_EQ(LinesOf(one).size(), 2u);
                                    EXPECT_EQ(ContributionsOf(three), ContributionsOf(one));
                                  });
}

TEST_P(Contribution, IsTheSameAfterKills) {
  const Settings settings =
      Plus(Plus(kLeavingOut, GetParam().settings), {"evaluation.leave_one_out=1", "run.rounds=14"});
  const std::string config = WriteConfig("kill");
  Simulation whole("whole", WithSettings(config, settings));
  ASSERT_EQ(whole.Wait(), 0) << whole.output();
  for (const Simulation& killed : RunsKilledAfter(2, config, Plus(settings, Pauses("0.3")))) {
    Simulation resumed("resumed", ResumeWithoutPauses(killed));
    ASSERT_EQ(resumed.Wait(), 0) << resumed.output();
    EXPECT_EQ(StateBytesOf(resumed), StateBytesOf(whole)) << killed.folder();
    EXPECT_EQ(ContributionsOf(resumed), ContributionsOf(whole)) << killed.folder();
  }
}

// What is recorded for a client in the first round is the model of a run of one round without it.
TEST_P(Contribution, IsTheRunWithoutTheClient) {
  const Settings settings =
      Plus(Plus(kLeavingOut, GetParam().settings), {"evaluation.leave_one_out=1", "run.rounds=1"});
  Simulation run("run", WithSettings(WriteConfig("without"), settings));
  ASSERT_EQ(run.Wait(), 0) << run.output();
  const nlohmann::json line = LinesOf(run).at(0);
  ASSERT_GE(line["client"].size(), 2u);
  const nlohmann::json row = testing_support::RowsOf(run).at(0);
  for (const size_t k : {size_t{0}, line["client"].size() - 1}) {
    const std::string again = absl::StrCat(run.folder(), "-without-", k);
    const auto replay =
        RunMacaw(absl::StrCat("replay ", run.folder(), " --out ", again, " --quiet --without ",
                              line["client"][k].get<uint64_t>()));
    ASSERT_EQ(replay.exit, 0) << replay.text;
    const nlohmann::json summary = nlohmann::json::parse(*ReadFile(again + "/summary.json"));
    EXPECT_EQ(summary["model_digest"], line["model"][k]);
    EXPECT_THAT(replay.text, HasSubstr(line["model"][k].get<std::string>()));
    EXPECT_EQ(summary["final"]["test_accuracy"], line["test_accuracy"][k]);
    EXPECT_EQ(summary["final"]["test_loss"], line["test_loss"][k]);
    EXPECT_EQ(line["delta_test_loss"][k].get<double>(),
              row["test_loss"].get<double>() - line["test_loss"][k].get<double>());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Of, Contribution,
    testing::Values(
        LeavingOut{"FedAvg", {}}, LeavingOut{"Scaffold", {"algorithm.name=scaffold"}},
        LeavingOut{"AdamWithACodec",
                   {"algorithm.name=fedadam", R"(update.codec=["topk 0.1"])",
                    "update.feedback=ef21", R"(broadcast.codec=["bits 8"])"}},
        LeavingOut{"Median", {"algorithm.name=median"}},
        LeavingOut{"HeteroFl", {"algorithm.name=heterofl", R"(algorithm.heterofl.rates="1 0.5")"}},
        LeavingOut{"Owners", {"workers.owners=3"}},
        LeavingOut{"FrozenAndHostile",
                   {R"(model.frozen=["1.*"])", "attack.kind=sign-flip", "attack.fraction=0.2"}},
        LeavingOut{"OverSelectionOnDevices",
                   Plus(SmallDevices(), {"cohort.over_selection=1.5", "round.deadline=60",
                                         "round.quorum=0.5", "cohort.sampling=available"})}),
    [](const auto& info) { return std::string(info.param.name); });

// ---- evaluation.unlearn

const Settings kUnlearning = SmallRun(20, 5, {"run.rounds=6", "evaluation.unlearn=[0,3,7,11,16]"});

std::string UnlearnedOf(const Simulation& run) {
  std::string all = ContributionsOf(run);
  EXPECT_FALSE(LinesOf(run).back()["unlearned_client"].empty());
  for (const nlohmann::json& client : LinesOf(run).back()["unlearned_client"])
    absl::StrAppend(&all, Slurp(absl::StrCat(run.folder(), "/unlearned/", client.get<uint64_t>(),
                                             ".safetensors")));
  return all;
}

class Unlearning : public testing::TestWithParam<LeavingOut> {};

TEST_P(Unlearning, IsTheSameForAnyWorkersAndInAReplay) {
  ExpectTheSameBytesForAnyWorkers(WriteConfig("unlearning"), Plus(kUnlearning, GetParam().settings),
                                  [](const Simulation& one, const Simulation& three) {
                                    EXPECT_EQ(ContributionsOf(three), ContributionsOf(one));
                                  });
}

TEST_P(Unlearning, IsTheSameAfterKills) {
  const Settings settings = Plus(Plus(kUnlearning, GetParam().settings), {"run.rounds=15"});
  const std::string config = WriteConfig("kill");
  Simulation whole("whole", WithSettings(config, settings));
  ASSERT_EQ(whole.Wait(), 0) << whole.output();
  for (const Simulation& killed : RunsKilledAfter(3, config, Plus(settings, Pauses("0.3")))) {
    Simulation resumed("resumed", ResumeWithoutPauses(killed));
    ASSERT_EQ(resumed.Wait(), 0) << resumed.output();
    EXPECT_EQ(StateBytesOf(resumed), StateBytesOf(whole)) << killed.folder();
    EXPECT_EQ(UnlearnedOf(resumed), UnlearnedOf(whole)) << killed.folder();
  }
}

// In one round nobody has learned from the client yet, so it is the run without it.
TEST_P(Unlearning, IsTheRunWithoutTheClientAfterOneRound) {
  const Settings settings = Plus(Plus(kUnlearning, GetParam().settings),
                                 {"run.rounds=1", "cohort.size=20", "evaluation.leave_one_out=1"});
  Simulation run("run", WithSettings(WriteConfig("without"), settings));
  ASSERT_EQ(run.Wait(), 0) << run.output();
  const nlohmann::json line = LinesOf(run).at(0);
  ASSERT_GE(line["unlearned_client"].size(), 1u);
  for (size_t i = 0; i < line["unlearned_client"].size(); ++i) {
    const auto k = static_cast<size_t>(
        std::ranges::find(line["client"], line["unlearned_client"][i]) - line["client"].begin());
    ASSERT_LT(k, line["client"].size());
    EXPECT_EQ(line["unlearned_model"][i], line["model"][k]);
    EXPECT_EQ(line["unlearned_test_loss"][i], line["test_loss"][k]);
    EXPECT_EQ(line["unlearned_rounds"][i], 1);
  }
  const uint64_t client = line["unlearned_client"][0];
  const auto replay = RunMacaw(absl::StrCat("replay ", run.folder(), " --out ", run.folder(),
                                            "-without --quiet --without ", client));
  ASSERT_EQ(replay.exit, 0) << replay.text;
  EXPECT_THAT(replay.text,
              HasSubstr(absl::StrCat(", 0 from ", run.folder(), "/unlearned/", client)));
  EXPECT_THAT(replay.text, HasSubstr("first order"));
}

INSTANTIATE_TEST_SUITE_P(
    Of, Unlearning,
    testing::Values(
        LeavingOut{"FedAvg", {}}, LeavingOut{"Scaffold", {"algorithm.name=scaffold"}},
        LeavingOut{"AdamWithACodec",
                   {"algorithm.name=fedadam", R"(update.codec=["topk 0.1"])",
                    "update.feedback=ef21", R"(broadcast.codec=["bits 8"])"}},
        LeavingOut{"Median", {"algorithm.name=median"}}, LeavingOut{"Owners", {"workers.owners=3"}},
        LeavingOut{"FrozenAndHostile",
                   {R"(model.frozen=["1.*"])", "attack.kind=sign-flip", "attack.fraction=0.2"}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Contributions, AreAddedUpOverTheRounds) {
  Simulation run("run", WithSettings(WriteConfig("table"), Plus(kLeavingOut, {"cohort.size=20"})));
  ASSERT_EQ(run.Wait(), 0) << run.output();
  const std::vector<nlohmann::json> lines = LinesOf(run);
  ASSERT_EQ(lines.size(), 2u);
  double delta = 0;
  for (const nlohmann::json& line : lines) delta += line["delta_test_loss"][7].get<double>();
  const std::string csv = run.folder() + "/table.csv";
  const auto table = RunMacaw(absl::StrCat("contribution ", run.folder(), " --most 2 --csv ", csv));
  ASSERT_EQ(table.exit, 0) << table.text;
  EXPECT_THAT(table.text, HasSubstr("16 more"));
  // 2^63: twice as many are no number of 64 bits.
  const auto all =
      RunMacaw(absl::StrCat("contribution ", run.folder(), " --most 9223372036854775808"));
  EXPECT_EQ(all.exit, 0) << all.text;
  EXPECT_THAT(all.text, Not(HasSubstr("more between")));
  bool found = false;
  for (const absl::string_view line : absl::StrSplit(*ReadFile(csv), '\n', absl::SkipEmpty())) {
    const std::vector<std::string> cells = absl::StrSplit(line, ',');
    if (cells.at(0) != "7") continue;
    found = true;
    EXPECT_EQ(cells.at(1), "2");
    EXPECT_NEAR(std::stod(cells.back()), delta, 1e-5);
  }
  EXPECT_TRUE(found);
}

// Clients 0, 1 and 2 of the data by their first rows; where patterns of names decide who is drawn,
// numbers are in the order of the names.
TEST(Contributions, HaveTheNamesOfTheClientsWhichAReplayTakes) {
  const testing_support::TemporaryFolder folder;
  std::string rows = "x0,x1,y,client\n";
  for (const auto& [client, count] :
       {std::pair("z-1", 30), std::pair("a-2", 60), std::pair("m-10", 120)}) {
    for (int k = 0; k < count; ++k)
      absl::StrAppend(&rows, k % 7, ",", (k * 5) % 11, ",", k % 3, ",", client, "\n");
  }
  const std::string data = folder.Write("rows.csv", rows);
  const std::string config = folder.Write(
      "run.toml",
      absl::StrCat("[run]\nname = \"names\"\nrounds = 1\n[data]\nsource = \"csv\"\npath = \"", data,
                   "\"\nlabel_column = \"y\"\nclient_column = \"client\"\n"
                   "test_fraction = 0.2\n[model]\nname = \"logistic\"\n[cohort]\n"
                   "size = 3\n[evaluation]\nleave_one_out = 1\n"));
  const struct {
    const char* name;
    Settings settings;
    size_t number;                  // of a-2
    std::vector<size_t> ascending;  // clients by their rows
  } cases[] = {{"plain", {}, 1, {0, 1, 2}},
               {"patterns", {R"(cohort.eligible=["*-*"])"}, 1, {0, 1, 2}}};
  for (const auto& one : cases) {
    Simulation run(one.name, WithSettings(config, one.settings));
    ASSERT_EQ(run.Wait(), 0) << run.output();
    const nlohmann::json line = LinesOf(run).at(0);
    const auto weight = [&](size_t i) { return line["weight"][one.ascending[i]].get<double>(); };
    ASSERT_TRUE(weight(0) < weight(1) && weight(1) < weight(2)) << line;
    const std::string csv = run.folder() + "/table.csv";
    const auto table = RunMacaw(absl::StrCat("contribution ", run.folder(), " --csv ", csv));
    ASSERT_EQ(table.exit, 0) << table.text;
    EXPECT_THAT(table.text, HasSubstr("m-10"));
    const std::string cells = absl::StrCat("\n", one.number, ",a-2,1,");
    EXPECT_THAT(*ReadFile(csv), testing::AllOf(HasSubstr("client,name,rounds"), HasSubstr(cells)));
    const auto json = RunMacaw(absl::StrCat("contribution ", run.folder(), " --json"));
    for (const nlohmann::json& client : nlohmann::json::parse(json.text)) {
      EXPECT_EQ(client["name"] == "a-2", client["client"] == one.number) << client;
    }
    const std::string replay = absl::StrCat("replay ", run.folder(), " --quiet --out ");
    const auto named = RunMacaw(absl::StrCat(replay, run.folder(), "-named --without a-2"));
    ASSERT_EQ(named.exit, 0) << named.text;
    EXPECT_THAT(named.text, HasSubstr(absl::StrCat("client ", one.number, " (a-2)")));
    EXPECT_THAT(named.text, HasSubstr(line["model"][one.number].get<std::string>()));
    const auto wrong = RunMacaw(absl::StrCat(replay, run.folder(), "-wrong --without a-3"));
    EXPECT_EQ(wrong.exit, 2);
    EXPECT_THAT(wrong.text, testing::AllOf(HasSubstr("a-3"), HasSubstr("\"a-2\"")));
  }
}

TEST(Contributions, AreRefusedWhereTheyCannotBe) {
  const std::string config = WriteConfig("refused");
  const auto refused = [&](const Settings& settings) {
    Simulation run("refused", WithSettings(config, Plus(kLeavingOut, settings)));
    EXPECT_NE(run.Wait(), 0);
    return run.output();
  };
  EXPECT_THAT(refused(SmallPrivacy()), HasSubstr("[privacy] hides"));
  EXPECT_THAT(refused({"devices.family=lognormal", "round.mode=buffered", "round.concurrency=10"}),
              HasSubstr("round.mode"));
  EXPECT_THAT(refused({"evaluation.central=false"}), HasSubstr("evaluation.central"));
  EXPECT_THAT(refused({R"(update.codec=["powersgd 2"])"}), HasSubstr("take \"acpsgd\""));
  EXPECT_THAT(refused({"algorithm.name=term"}), HasSubstr("several phases"));
  EXPECT_THAT(refused({"evaluation.leave_one_out=0", "evaluation.unlearn=[3]",
                       R"(update.codec=["acpsgd 2"])"}),
              HasSubstr("evaluation.unlearn: update.codec"));
  EXPECT_THAT(refused({"evaluation.unlearn=[3,20]"}), HasSubstr("client 20"));
  Simulation plain("plain", {config});
  ASSERT_EQ(plain.Wait(), 0) << plain.output();
  const auto none = RunMacaw(absl::StrCat("contribution ", plain.folder()));
  EXPECT_EQ(none.exit, 2);
  EXPECT_THAT(none.text, HasSubstr("evaluation.leave_one_out"));
  const auto nobody = RunMacaw(absl::StrCat("replay ", plain.folder(), " --out ", plain.folder(),
                                            "-again --without 999999"));
  EXPECT_EQ(nobody.exit, 2);
  EXPECT_THAT(nobody.text, HasSubstr("has 200 clients, with the numbers 0 to 199"));
  const auto alone = RunProgram(
      MACAW_BIN_DIR "/macaw-server",
      absl::StrCat("--config ", config, " --run-dir ", plain.folder(), "-server --without 3"));
  EXPECT_NE(alone.exit, 0);
  EXPECT_THAT(alone.text, HasSubstr("--replay"));
}

}  // namespace
}  // namespace macaw
