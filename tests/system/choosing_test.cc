// What chooses and what is reported, with real programs: validation rows, budgets, the best model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/files.h"
#include "testing/temporary_folder.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing_support::Printed;
using testing_support::RunMacaw;
using Json = nlohmann::json;

class ChoosingTest : public testing::Test {
 protected:
  ChoosingTest() {
    std::string csv = "a,b,label\n";
    for (int row = 0; row < 400; ++row) {
      const int a = row * 7 % 19 - 9, b = row * 11 % 23 - 11;
      absl::StrAppend(&csv, a, ".5,", b, ".25,", a + b > 0 ? 1 : 0, "\n");
    }
    folder_.Write("rows.csv", csv);
    folder_.Write("run.toml", R"(
[run]
rounds = 8
[data]
source = "csv"
path = "rows.csv"
central_val_fraction = 0.2
[partition]
clients = 20
[model]
name = "logistic"
[cohort]
size = 5
)");
  }
  Printed Simulate(const std::string& name, const std::string& arguments = "") const {
    return RunMacaw(absl::StrCat("simulate ", folder_ / "run.toml", " --out ", folder_ / name,
                                 " --slots 1 ", arguments));
  }
  Json Summary(const std::string& name) const {
    const auto text = ReadFile(folder_ / name + "/summary.json");
    EXPECT_TRUE(text.ok()) << text.status();
    return text.ok() ? Json::parse(*text) : Json();
  }

  const testing_support::TemporaryFolder folder_;
};

constexpr char kPrivate[] =
    " --set privacy.mechanism=gaussian --set privacy.clip=1 --set privacy.noise=2"
    " --set privacy.delta=0.001 --set cohort.sampling=poisson --set cohort.weight=uniform";

constexpr char kIfca[] =
    " --set algorithm.name=ifca --set algorithm.ifca.start=noise --set evaluation.clients=true"
    " --set data.client_test_fraction=0.2 --set data.central_val_fraction=0";

// With a spread of 1e30 the products of the second model's layers are beyond all numbers.
TEST_F(ChoosingTest, AModelThatHasDivergedIsTakenByNobody) {
  const Printed run = Simulate(
      "diverged", absl::StrCat(kIfca, " --set algorithm.ifca.spread=1e30 --set model.name=mlp"));
  ASSERT_EQ(run.exit, 0) << run.text;
  const Json summary = Summary("diverged");
  EXPECT_EQ(summary["left_out"]["clients"], 0);
  EXPECT_EQ(summary["final"]["rule_clients0"], 5);
  EXPECT_EQ(summary["final"]["clients_test_model0_clients"], 20);
  EXPECT_EQ(summary["final"]["clients_test_model1_clients"], 0);
}

// Sums have steps of about 1e-15 of the bound, which is then beyond all updates.
TEST_F(ChoosingTest, ABoundFarAboveAllUpdatesIsWarnedOf) {
  const Printed fine = Simulate("fine", "");
  ASSERT_EQ(fine.exit, 0) << fine.text;
  EXPECT_THAT(fine.text, testing::Not(HasSubstr("contribution_bound")));
  EXPECT_FALSE(Summary("fine").contains("coarse_sums"));
  const Printed coarse = Simulate("coarse", " --set run.contribution_bound=1e16");
  ASSERT_EQ(coarse.exit, 0) << coarse.text;
  EXPECT_THAT(coarse.text,
              AllOf(HasSubstr("warning: in round 1 the largest number of the clients' updates"),
                    HasSubstr("warning    In ")));
  const Json summary = Summary("coarse");
  EXPECT_EQ(summary["coarse_sums"]["rounds"], summary["rounds"]);
}

// Nobody chooses the second and the third model: they stay as they began, whatever they are, and
// the first one is that of a run with others in their place.
TEST_F(ChoosingTest, AClusterThatNobodyChoosesStaysAsItBegan) {
  const auto run = [&](const std::string& name, const std::string& more) {
    const Printed printed = Simulate(
        name, absl::StrCat(kIfca, " --set algorithm.ifca.clusters=3 --set model.name=mlp ", more));
    ASSERT_EQ(printed.exit, 0) << printed.text;
    const Json final = Summary(name)["final"];
    EXPECT_EQ(final["rule_clients0"], 5);
    for (const char* model : {"1", "2"}) {
      EXPECT_EQ(final[absl::StrCat("rule_clients", model)], 0);
      EXPECT_EQ(final[absl::StrCat("clients_test_model", model, "_clients")], 0);
      EXPECT_TRUE(final[absl::StrCat("clients_test_model", model, "_accuracy")].is_null());
    }
    EXPECT_EQ(final["clients_test_model0_accuracy"], final["clients_test_accuracy"]);
  };
  run("short", "--set algorithm.ifca.spread=100 --rounds 2");
  run("long", "--set algorithm.ifca.spread=100");
  run("other", "--set algorithm.ifca.spread=1000");
  const auto model = [&](const std::string& name, int number) {
    return *ReadFile(absl::StrCat(folder_ / name, "/models/", number, ".safetensors"));
  };
  EXPECT_NE(model("short", 0), model("long", 0));
  EXPECT_EQ(model("long", 0), model("other", 0));
  for (const int empty : {1, 2}) {
    EXPECT_EQ(model("short", empty), model("long", empty)) << empty;
    EXPECT_NE(model("long", empty), model("other", empty)) << empty;
  }
}

// By default the models begin as permutations of one.
TEST_F(ChoosingTest, PermutedModelsAreEstimatedAndCheckedBeforeAFolderIsMade) {
  const std::string permuted =
      absl::StrCat(kIfca, " --set algorithm.ifca.start=permuted --set model.name=mlp ");
  const Printed estimate = Simulate("estimate", permuted + "--estimate");
  EXPECT_EQ(estimate.exit, 0) << estimate.text;
  const Printed zero = Simulate("zero", permuted + "--set model.init=zero --check");
  EXPECT_EQ(zero.exit, 2) << zero.text;
  EXPECT_THAT(zero.text, HasSubstr("would begin equal to the first one"));
  EXPECT_FALSE(FileExists(folder_ / "zero"));
}

TEST_F(ChoosingTest, RefusesPatienceWithSeveralModels) {
  const std::string metric =
      absl::StrCat(kIfca, " --set run.stop.metric=clients_test_accuracy --set run.stop.");
  const Printed refused = Simulate("several", metric + "patience=3");
  EXPECT_EQ(refused.exit, 2) << refused.text;
  EXPECT_THAT(refused.text, AllOf(HasSubstr("run.stop.patience"), HasSubstr("several models"),
                                  HasSubstr("run.stop.at_least")));
  EXPECT_EQ(Simulate("several", metric + "at_least=0.1").exit, 0);
}

TEST_F(ChoosingTest, ValidationRowsChooseTheRoundOfARunItsOwnersAndItsProcesses) {
  ASSERT_EQ(Simulate("run").exit, 0);
  const Json summary = Summary("run");
  EXPECT_EQ(summary["best"]["metric"], "val_accuracy");
  EXPECT_TRUE(summary["best"]["report"].contains("test_accuracy"));
  for (const char* more : {"--owners 3", "--set workers.processes=2"}) {
    const Printed other = Simulate("other", absl::StrCat("--force ", more));
    ASSERT_EQ(other.exit, 0) << other.text;
    EXPECT_EQ(*ReadFile(folder_ / "other/metrics.jsonl"), *ReadFile(folder_ / "run/metrics.jsonl"))
        << more;
  }
  const Printed local = Simulate("local", "--set algorithm.name=local");
  ASSERT_EQ(local.exit, 0) << local.text;
  EXPECT_FALSE(Summary("local")["final"].contains("val_accuracy")) << "it has no common model";
}

TEST_F(ChoosingTest, AStopRuleTakesValidationRowsWhereNothingIsNamed) {
  const Printed run = Simulate("run", "--set run.stop.patience=2 --rounds 40");
  ASSERT_EQ(run.exit, 0) << run.text;
  EXPECT_THAT(run.text, Not(HasSubstr("is of test rows")));
  const Json summary = Summary("run");
  EXPECT_EQ(summary["settings"]["run.stop.metric"], "val_accuracy");
  EXPECT_EQ(summary["best_model"]["metric"], "val_accuracy");
  EXPECT_TRUE(FileExists(folder_ / "run/model.best.safetensors"));
  const Printed by_test =
      Simulate("test", "--set data.central_val_fraction=0 --set run.stop.patience=2");
  ASSERT_EQ(by_test.exit, 0) << by_test.text;
  EXPECT_THAT(by_test.text, AllOf(HasSubstr("test_accuracy is of test rows"),
                                  HasSubstr("data.central_val_fraction")));
}

TEST_F(ChoosingTest, APrivacyBudgetIsNotExceededAndAResumeSaysItsEpsilon) {
  const Printed begun = Simulate("run", absl::StrCat("--rounds 3", kPrivate));
  ASSERT_EQ(begun.exit, 0) << begun.text;
  const double three = Summary("run")["privacy"]["epsilon"];
  const double column = Summary("run")["final"]["rule_epsilon"];
  const Printed more = RunMacaw(absl::StrCat("simulate --resume ", folder_ / "run --rounds 6"));
  ASSERT_EQ(more.exit, 0) << more.text;
  EXPECT_THAT(more.text, HasSubstr("after run.rounds = 6"));
  EXPECT_GT(Summary("run")["privacy"]["epsilon"].get<double>(), three);
  const Printed stopped =
      Simulate("stopped", absl::StrCat("--rounds 6 --set run.stop.metric=rule_epsilon --set "
                                       "run.stop.at_least=",
                                       column + 1e-3, kPrivate));
  ASSERT_EQ(stopped.exit, 0) << stopped.text;
  EXPECT_THAT(stopped.text, HasSubstr("the run ends after round 3 of 6"));
  const Json summary = Summary("stopped");
  EXPECT_EQ(summary["rounds"], 3);
  EXPECT_EQ(summary["end"], "stopped");
  EXPECT_LE(summary["final"]["rule_epsilon"].get<double>(), column + 1e-3);
  EXPECT_DOUBLE_EQ(summary["privacy"]["epsilon"].get<double>(), three);
  EXPECT_THAT(Simulate("x", absl::StrCat("--set run.stop.metric=rule_epsilon --set "
                                         "run.stop.at_least=0.001",
                                         kPrivate))
                  .text,
              HasSubstr("after one round"));
}

TEST_F(ChoosingTest, ARepeatSaysWhatItsSeedsDoNotCoverAndItsFileGoesToCompare) {
  const Printed repeat = Simulate("r", "--repeat 2 --set partition.seed=4");
  ASSERT_EQ(repeat.exit, 0) << repeat.text;
  EXPECT_THAT(repeat.text, HasSubstr("partition.seed = 4"));
  EXPECT_THAT(Simulate("s", "--repeat 2 --set partition.seed=run").text,
              Not(HasSubstr("deviations do not cover")));
  const Printed table =
      RunMacaw(absl::StrCat("compare ", folder_ / "r-repeat.json ", folder_ / "s-repeat.json",
                            " --select val_accuracy --paired test_accuracy"));
  ASSERT_EQ(table.exit, 0) << table.text;
  EXPECT_THAT(table.text,
              AllOf(HasSubstr("best_val_accuracy"), HasSubstr("test_accuracy_at_best_val_accuracy"),
                    HasSubstr("p, Holm")));
}

TEST_F(ChoosingTest, ASweepHalvesByValidationRows) {
  folder_.Write("sweep.toml", R"(base = "run.toml"
seeds = [1, 2]
halving.rounds = [2, 6]
halving.factor = 2
[keys]
local.lr = [0.0001, 0.1]
)");
  const Printed sweep =
      RunMacaw(absl::StrCat("sweep ", folder_ / "sweep.toml", " --out ", folder_ / "sweep"));
  ASSERT_EQ(sweep.exit, 0) << sweep.text;
  EXPECT_THAT(sweep.text, AllOf(HasSubstr("val_accuracy"), HasSubstr("test_accuracy"),
                                Not(HasSubstr("is of test rows"))));
  EXPECT_THAT(*ReadFile(folder_ / "sweep/best.toml"), HasSubstr("Beside it: test_accuracy"));
  const Printed again =
      RunMacaw(absl::StrCat("sweep ", folder_ / "sweep.toml", " --out ", folder_ / "sweep"));
  EXPECT_EQ(again.exit, 0) << "the same command goes on: " << again.text;
  const Printed show =
      RunMacaw(absl::StrCat("sweep show ", folder_ / "sweep", " --metric test_accuracy"));
  EXPECT_THAT(show.text, HasSubstr("warning: test_accuracy is of test rows"));
}

TEST_F(ChoosingTest, ASweepIsShownByAnotherMetricAsItWasHalved) {
  folder_.Write("worst.toml", R"(base = "run.toml"
metric = "val_loss"
mode = "max"
halving.rounds = [2, 6]
halving.factor = 2
[keys]
local.lr = [0.0001, 0.1]
)");
  const Printed sweep =
      RunMacaw(absl::StrCat("sweep ", folder_ / "worst.toml", " --out ", folder_ / "worst"));
  ASSERT_EQ(sweep.exit, 0) << sweep.text;
  for (const auto& [metric, mode] : {std::pair("test_loss", "min"), {"val_loss", "max"}}) {
    const Json table = Json::parse(
        RunMacaw(absl::StrCat("sweep show --json ", folder_ / "worst", " --metric ", metric)).text);
    EXPECT_EQ(table["mode"], mode) << metric;
    EXPECT_EQ(table["best"], "001") << metric;
    EXPECT_EQ(table["rows"][0]["rounds"], 6) << metric;
    EXPECT_EQ(table["rows"][1]["rounds"], 2) << metric;
    EXPECT_EQ(table["done"], table["runs"]) << metric;
  }
}

}  // namespace
}  // namespace macaw
