// From a sweep file to its jobs: what is drawn, what is refused, and what chooses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/config/key_error.h"
#include "cli/sweep/prepare.h"
#include "cli/sweep/space.h"
#include "tests/cli/config_test_util.h"
#include "tests/cli/sweep_plan_fixture.h"

namespace macaw::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(SweepPlanTest, BaselinesRunOnceWithTheOtherSettings) {
  const PreparedSweep sweep = Sweep(
      "baselines = [\"local\", \"pooled\"]\nmetric = \"train_loss\"\n[keys]\n"
      "algorithm.name = [\"fedavg\", \"fedprox\"]\nlocal.lr = [0.1, 0.2]\n");
  std::set<std::string> seen;
  for (const Configuration& configuration : sweep.plan.configurations) {
    ASSERT_EQ(configuration.values.size(), 2u);
    seen.insert(configuration.values[0].dump() + configuration.values[1].dump());
  }
  EXPECT_EQ(sweep.plan.configurations.size(), 8u);
  EXPECT_EQ(seen.size(), 8u);
  EXPECT_TRUE(seen.contains("\"pooled\"0.2"));
  EXPECT_TRUE(sweep.notes.empty()) << sweep.notes[0];
  // The algorithm need not be a key of the file.
  const PreparedSweep alone = Sweep("baselines = [\"local\"]\nmetric = \"train_loss\"\n");
  ASSERT_EQ(alone.plan.configurations.size(), 2u);
  EXPECT_EQ(alone.plan.configurations[0].values[0], "fedavg");
  EXPECT_EQ(alone.plan.configurations[1].values[0], "local");
  EXPECT_FALSE(alone.plan.configurations[0].baseline);
  EXPECT_TRUE(alone.plan.configurations[1].baseline);
  const auto again = ParsePlan(JsonOf(alone.plan), "sweep.json");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->candidates(), 1u);
  EXPECT_EQ(sweep.plan.candidates(), 4u);
  EXPECT_THAT(Refused("base = \"run.toml\"\nbaselines = [\"krum\"]\n", "baselines"),
              HasSubstr("baselines"));
}

TEST_F(SweepPlanTest, WhereThereAreOnlyBaselinesTheyAreCandidates) {
  const PreparedSweep sweep = Sweep(
      "baselines = [\"pooled\"]\nmetric = \"train_loss\"\n[keys]\n"
      "algorithm.name = [\"pooled\"]\nlocal.lr = [0.1, 0.2]\n");
  EXPECT_EQ(sweep.plan.configurations.size(), 2u);
  EXPECT_EQ(sweep.plan.candidates(), 2u);
}

TEST_F(SweepPlanTest, ChoosesAMetricThatTheBaselinesHaveToo) {
  const std::string baselines =
      "baselines = [\"local\", \"pooled\"]\n[keys]\nlocal.lr = [0.1, 0.2]\n";
  const PreparedSweep sweep = Sweep(baselines + "evaluation.clients = [true]\n");
  EXPECT_EQ(sweep.plan.metric, "clients_test_accuracy");
  EXPECT_EQ(sweep.plan.configurations.size(), 6u);
  const std::string refused = Refused("base = \"run.toml\"\n" + baselines);
  EXPECT_THAT(refused, AllOf(HasSubstr("\"local\""), HasSubstr("evaluation.clients"),
                             HasSubstr("clients_test_accuracy")));
  EXPECT_EQ(Sweep("[keys]\nlocal.lr = [0.1, 0.2]\n").plan.metric, "test_accuracy");
}

TEST_F(SweepPlanTest, AMetricOfTheCommonModelGivesWayToThatOfClientsWhereABaselineHasNone) {
  const std::string keys = "[keys]\nlocal.lr = [0.1, 0.2]\n";
  const std::string tested = keys + "evaluation.clients = [true]\n";
  for (const auto& [named, chosen] : {std::pair{"test_accuracy", "clients_test_accuracy"},
                                      {"best_test_loss", "best_clients_test_loss"}}) {
    const std::string metric = absl::StrCat("metric = \"", named, "\"\n");
    const PreparedSweep sweep = Sweep(metric + "baselines = [\"local\"]\n" + tested);
    EXPECT_EQ(sweep.plan.metric, chosen);
    EXPECT_EQ(sweep.plan.higher, std::string(chosen) == "clients_test_accuracy");
    EXPECT_THAT(sweep.notes, testing::Contains(AllOf(HasSubstr(named), HasSubstr(chosen))));
    // Rules that have it keep it.
    const PreparedSweep common = Sweep(metric + "baselines = [\"pooled\"]\n" + tested);
    EXPECT_EQ(common.plan.metric, named);
    EXPECT_THAT(common.notes, testing::IsEmpty());
    // Clients are not tested, so nothing is in all runs.
    EXPECT_THAT(Refused("base = \"run.toml\"\nbaselines = [\"local\"]\n" + metric + keys),
                AllOf(HasSubstr(named), HasSubstr("\"local\""), HasSubstr("evaluation.clients")));
  }
}

TEST_F(SweepPlanTest, EveryCombinationRunsWithEverySeed) {
  const PreparedSweep sweep = Sweep(R"(
seeds = [4, 9]
[keys]
local.lr = [0.05, 0.1]
cohort.size = [5, 10]
)");
  EXPECT_THAT(sweep.plan.keys, ElementsAre("cohort.size", "local.lr"));
  ASSERT_EQ(sweep.jobs.size(), 8u);
  EXPECT_THAT(NamesOf(sweep), ElementsAre("001-seed4", "001-seed9", "002-seed4", "002-seed9",
                                          "003-seed4", "003-seed9", "004-seed4", "004-seed9"));
  EXPECT_THAT(sweep.jobs[3].config, AllOf(HasSubstr("size = 5\n"), HasSubstr("lr = 0.1\n"),
                                          HasSubstr("seed = 9\n"), HasSubstr("002-seed9\"")));
  EXPECT_EQ(sweep.plan.metric, "test_accuracy");
  EXPECT_TRUE(sweep.plan.higher);
}

TEST_F(SweepPlanTest, WithoutSeedsAndKeysThereIsTheBase) {
  const PreparedSweep sweep = Sweep("metric = \"test_loss\"\n");
  EXPECT_THAT(NamesOf(sweep), ElementsAre("001-seed0"));
  EXPECT_FALSE(sweep.plan.higher);
  EXPECT_TRUE(Sweep("metric = \"test_loss\"\nmode = \"max\"\n").plan.higher);
}

TEST_F(SweepPlanTest, TheBaseMayStandInTheFile) {
  const absl::StatusOr<PreparedSweep> sweep = Read(
      "[keys]\nlocal.lr = [0.1, 0.2]\n[base]\ndata.source = \"synthetic\"\n"
      "model.name = \"logistic\"\ncohort.size = 10\n");
  ASSERT_TRUE(sweep.ok()) << sweep.status();
  EXPECT_EQ(sweep->jobs.size(), 2u);
  EXPECT_THAT(Refused("[base]\nlocal.lrr = 1\n", "local.lrr"), HasSubstr("sweep.toml:2"));
}

TEST_F(SweepPlanTest, ATableSetsSeveralKeys) {
  const PreparedSweep sweep = Sweep(R"(
[keys]
algorithm = [{name = "fedavg"}, {name = "fedprox", fedprox.mu = 0.5}]
)");
  EXPECT_THAT(sweep.plan.keys, ElementsAre("algorithm.name", "algorithm.fedprox.mu"));
  ASSERT_EQ(sweep.plan.configurations.size(), 2u);
  EXPECT_TRUE(sweep.plan.configurations[0].values[1].is_null());
  EXPECT_EQ(sweep.plan.configurations[1].values[1], 0.5);
}

TEST_F(SweepPlanTest, TheSameExperimentRunsOnce) {
  const PreparedSweep sweep = Sweep(R"(
[keys]
algorithm.name = ["fedavg", "fedprox"]
algorithm.fedprox.mu = [0.1, 0.5]
)");
  EXPECT_EQ(sweep.plan.configurations.size(), 3u) << "fedavg has no mu";
  EXPECT_THAT(sweep.notes, ElementsAre(HasSubstr("1 combination")));
}

TEST_F(SweepPlanTest, DrawsStayInTheirRangesAndDependOnTheirKeyAlone) {
  const std::string lr = "local.lr = {log_uniform = [0.001, 1.0]}\n";
  const std::string more =
      "local.epochs = {integers = [2, 4]}\nlocal.momentum = {uniform = [0, 0.9]}\n"
      "local.batch_size = {choice = [5, 10]}\n";
  const PreparedSweep one = Sweep("samples = 5\n[keys]\n" + lr);
  const PreparedSweep all = Sweep("samples = 40\n[keys]\n" + lr + more);
  ASSERT_EQ(all.plan.configurations.size(), 40u);
  std::set<double> below;
  std::set<int> epochs, sizes;
  for (const Configuration& configuration : all.plan.configurations) {
    const auto value = [&](const std::string& key) {
      const auto at = std::ranges::find(all.plan.keys, key) - all.plan.keys.begin();
      return configuration.values[static_cast<size_t>(at)];
    };
    EXPECT_GE(value("local.lr").get<double>(), 0.001);
    EXPECT_LE(value("local.lr").get<double>(), 1.0);
    if (value("local.lr") < 0.0316) below.insert(value("local.lr").get<double>());
    EXPECT_GE(value("local.momentum").get<double>(), 0);
    EXPECT_LE(value("local.momentum").get<double>(), 0.9);
    epochs.insert(value("local.epochs").get<int>());
    sizes.insert(value("local.batch_size").get<int>());
  }
  EXPECT_THAT(epochs, ElementsAre(2, 3, 4));
  EXPECT_THAT(sizes, ElementsAre(5, 10));
  EXPECT_NEAR(static_cast<double>(below.size()), 20, 10) << "half are below the geometric mean";
  const auto lr_at = std::ranges::find(all.plan.keys, "local.lr") - all.plan.keys.begin();
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(one.plan.configurations[i].values[0],
              all.plan.configurations[i].values[static_cast<size_t>(lr_at)]);
  }
  const PreparedSweep other = Sweep("samples = 5\nsample_seed = 7\n[keys]\n" + lr);
  EXPECT_NE(one.plan.configurations[0].values, other.plan.configurations[0].values);
}

TEST(SweepSpace, DrawsFromRangesWhoseEndsAreFurtherApartThanANumberCanSay) {
  const auto draws = [](Axis::Kind kind, double low, double high) {
    Axis axis;
    axis.key = "local.lr";
    axis.kind = kind;
    axis.low = low;
    axis.high = high;
    std::vector<double> values;
    for (const Point& point : PointsOf({axis}, /*samples=*/200, /*seed=*/0))
      values.push_back(*point[0].value.As<double>());
    return values;
  };
  const auto below = [](const std::vector<double>& values, double middle) {
    return std::ranges::count_if(values, [&](double value) { return value < middle; });
  };
  const std::vector<double> wide = draws(Axis::Kind::kLogUniform, 1e-10, 1e299);
  EXPECT_NEAR(static_cast<double>(below(wide, std::pow(10, 144.5))), 100, 30);
  EXPECT_GE(std::ranges::min(wide), 1e-10);
  EXPECT_LE(std::ranges::max(wide), 1e299);
  const std::vector<double> both = draws(Axis::Kind::kUniform, -1.5e308, 1.5e308);
  EXPECT_NEAR(static_cast<double>(below(both, 0)), 100, 30);
  EXPECT_NEAR(static_cast<double>(below(both, 0.75e308)), 150, 30);
  // Six digits would make a handful of numbers of these, mostly the ends.
  std::vector<double> narrow = draws(Axis::Kind::kUniform, 1, 1.000001);
  EXPECT_EQ(std::set<double>(narrow.begin(), narrow.end()).size(), 200u);
  narrow = draws(Axis::Kind::kLogUniform, 0.1234567, 0.1234568);
  EXPECT_NEAR(static_cast<double>(below(narrow, 0.12345675)), 100, 30);
  EXPECT_GT(std::ranges::min(narrow), 0.1234567);
  EXPECT_LT(std::ranges::max(narrow), 0.1234568);
  // Draws of other ranges are those of every version.
  const std::vector<double> usual = draws(Axis::Kind::kLogUniform, 0.001, 1);
  EXPECT_THAT(std::vector<double>(usual.begin(), usual.begin() + 3),
              ElementsAre(0.142284, 0.284399, 0.011464));
}

TEST_F(SweepPlanTest, EachPointOfAGridHasTheSameDraws) {
  const PreparedSweep sweep = Sweep(R"(
samples = 2
[keys]
cohort.size = [5, 10]
local.lr = {uniform = [0.1, 0.2]}
)");
  const auto& all = sweep.plan.configurations;
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0].values[1], all[2].values[1]);
  EXPECT_EQ(all[1].values[1], all[3].values[1]);
  EXPECT_NE(all[0].values[1], all[1].values[1]);
}

TEST_F(SweepPlanTest, AScheduleSpansAllRungs) {
  const PreparedSweep sweep = Sweep(R"(
halving.rounds = [5, 30]
[keys]
local.lr_schedule.kind = ["cosine"]
)");
  ASSERT_EQ(sweep.jobs.size(), 1u);
  EXPECT_THAT(sweep.jobs[0].config, AllOf(HasSubstr("\nrounds = 30\n"),
                                          HasSubstr("[local.lr_schedule]\nkind = \"cosine\"\n")));
  const std::string& config = sweep.jobs[0].config;
  EXPECT_THAT(config.substr(config.find("[local.lr_schedule]")), HasSubstr("rounds = 30"));
}

TEST_F(SweepPlanTest, RefusesWhatIsWrongWithItsLineAndTheNearestWord) {
  const std::string base = "base = \"run.toml\"\n";
  EXPECT_THAT(Refused(base + "[keys]\nlocal.lrr = [1]\n", "local.lrr"),
              AllOf(HasSubstr("sweep.toml:3"), HasSubstr("local.lr?")));
  EXPECT_THAT(Refused(base + "[keys]\nlocal.lr = [0.1, -1]\n", "local.lr"),
              AllOf(HasSubstr("sweep.toml:3"), HasSubstr("-1")));
  EXPECT_THAT(Refused(base + "[keys]\nlocal.lr = 0.1\n", "local.lr"), HasSubstr("log_uniform"));
  EXPECT_THAT(Refused(base + "[keys]\nlocal.lr = []\n", "local.lr"), HasSubstr("no values"));
  EXPECT_THAT(Refused(base + "[keys]\nlocal.lr = {loguniform = [0.1, 1]}\n", "local.lr"),
              HasSubstr("did you mean log_uniform?"));
  EXPECT_THAT(Refused(base + "[keys]\nlocal.lr = {uniform = [1, 0.1]}\n", "local.lr"),
              HasSubstr("least < most"));
  EXPECT_THAT(Refused(base + "[keys]\nlocal.lr = {log_uniform = [0, 1]}\n", "local.lr"),
              HasSubstr("least > 0"));
  EXPECT_THAT(Refused(base + "[keys]\nlocal.epochs = {integers = [1, 2.5]}\n", "local.epochs"),
              HasSubstr("integers"));
  EXPECT_THAT(Refused(base + "[keys]\nlocal.lr = {uniform = [0.1, 1]}\n"), HasSubstr("samples"));
  EXPECT_THAT(Refused(base + "samples = 3\n[keys]\nlocal.lr = [0.1]\n"), HasSubstr("samples"));
  EXPECT_THAT(Refused(base + "metric = \"test_acuracy\"\n"),
              HasSubstr("did you mean \"test_accuracy\"?"));
  EXPECT_THAT(Refused(base + "metric = \"rounds_to_0.7\"\n"),
              AllOf(HasSubstr("rounds_to_0.7"), HasSubstr("0.5, 0.8, 0.9")));
  EXPECT_THAT(Refused(base + "metrik = \"test_loss\"\n", "metrik"),
              HasSubstr("did you mean metric?"));
  EXPECT_THAT(Refused(base + "mode = \"best\"\n", "mode"), HasSubstr("sweep.toml:2"));
  EXPECT_THAT(Refused(base + "seeds = [1, 1]\n"), HasSubstr("seeds"));
  EXPECT_THAT(Refused(base + "halving.rounds = [10, 5]\n"), HasSubstr("grow"));
  EXPECT_THAT(Refused(base + "halving.rounds = [5, 10]\n[keys]\nrun.rounds = [5]\n", "run.rounds"),
              HasSubstr("halving.rounds"));
  EXPECT_THAT(Refused(base + "[keys]\nrun.seed = [1, 2]\n", "run.seed"), HasSubstr("seeds"));
  EXPECT_THAT(Refused(base + "[keys]\ncohort.size = [5]\ncohort.fraction = [0.1]\n"),
              HasSubstr("cohort.size"));
  EXPECT_THAT(Refused("base = \"none.toml\"\n"), HasSubstr("none.toml"));
  EXPECT_THAT(Refused("seeds = [1]\n"), HasSubstr("base is missing"));
  EXPECT_THAT(Refused(base + "keys = 3\n", "keys"), HasSubstr("table"));
}

TEST_F(SweepPlanTest, RefusesMoreRunsThanThereMayBeAndSaysHowMany) {
  const std::string many =
      "base = \"run.toml\"\nsamples = 100001\n[keys]\nlocal.lr = {uniform = [0.1, 1]}\n";
  EXPECT_THAT(Refused(many), HasSubstr("100001 configurations are more than 100000 runs"));
  EXPECT_THAT(Refused("seeds = [7]\n" + many),
              HasSubstr("100001 configurations with 1 seed are more than"));
}

// An error that only the data can show names the combination.
TEST_F(SweepPlanTest, ChecksEachConfigurationAgainstItsData) {
  EXPECT_THAT(Refused("base = \"run.toml\"\n[keys]\ncohort.size = [10, 100000]\n", "cohort.size"),
              AllOf(HasSubstr("with cohort.size = 100000"), HasSubstr("clients")));
}

TEST_F(SweepPlanTest, ValidationRowsChooseAndTestRowsAreReported) {
  const std::string both =
      "data.val_fraction = [0.2]\nevaluation.splits = [[\"test\", \"validation\"]]\n";
  const PreparedSweep sweep = Sweep("[keys]\nlocal.lr = [0.1, 0.2]\n" + both);
  EXPECT_EQ(sweep.plan.metric, "clients_val_accuracy");
  EXPECT_THAT(sweep.plan.report, ElementsAre("test_accuracy"));
  EXPECT_THAT(sweep.warnings, testing::IsEmpty());
  const PreparedSweep best =
      Sweep("metric = \"best_clients_val_loss\"\n[keys]\nlocal.lr = [0.1, 0.2]\n" + both);
  EXPECT_THAT(best.plan.report, ElementsAre("test_accuracy_at_best_clients_val_loss"));
  EXPECT_FALSE(best.plan.higher);
}

TEST_F(SweepPlanTest, WarnsWhereTestRowsChooseAndRefusesAMetricWithoutRows) {
  const PreparedSweep sweep = Sweep("[keys]\nlocal.lr = [0.1, 0.2]\n");
  EXPECT_EQ(sweep.plan.metric, "test_accuracy");
  EXPECT_THAT(sweep.plan.report, testing::IsEmpty());
  EXPECT_THAT(sweep.warnings, ElementsAre(HasSubstr("data.central_val_fraction")));
  EXPECT_THAT(Sweep("").warnings, testing::IsEmpty()) << "one configuration: nothing is chosen";
  EXPECT_THAT(Refused("base = \"run.toml\"\nmetric = \"val_accuracy\"\n"),
              HasSubstr("data.central_val_fraction"));
  EXPECT_THAT(Refused("base = \"run.toml\"\nreport = [\"test_acuracy\"]\n"),
              HasSubstr("did you mean \"test_accuracy\""));
  const PreparedSweep without =
      Sweep("[keys]\ndata.test_fraction = [0.0]\nlocal.lr = [0.1, 0.2]\n");
  EXPECT_EQ(without.plan.metric, "train_loss") << "there are no test rows";
}

TEST_F(SweepPlanTest, ReportsWhatSomeConfigurationHas) {
  const std::string kinds = "[keys]\nattack.kind = [\"none\", \"alie\"]\nattack.fraction = [0.3]\n";
  const PreparedSweep sweep = Sweep("report = [\"rule_attackers\", \"test_loss\"]\n" + kinds);
  EXPECT_THAT(sweep.plan.report, ElementsAre("rule_attackers", "test_loss"));
  // What decides is in all of them, and the error names one that has it not.
  EXPECT_THAT(Refused("base = \"run.toml\"\nmetric = \"rule_attackers\"\n" + kinds),
              AllOf(HasSubstr("attack.kind = \"none\""), HasSubstr("no such column")));
  // Nobody has it: of the columns that are listed each is in a run.
  const std::string refused =
      Refused("base = \"run.toml\"\nreport = [\"rule_atackers\"]\n" + kinds);
  EXPECT_THAT(refused,
              AllOf(HasSubstr("report is \"rule_atackers\""), HasSubstr("attack.kind = \"alie\""),
                    HasSubstr("did you mean \"rule_attackers\""),
                    HasSubstr("No configuration of the sweep has it")));
  EXPECT_THAT(refused, HasSubstr("test_loss"));
  for (const char* never : {"clients_test_loss", "val_loss", "heldout_test_loss"})
    EXPECT_THAT(refused, testing::Not(HasSubstr(never)));
}

// The second command finds the runs with an attack in its folder, and does not check them again.
TEST_F(SweepPlanTest, ReportsWhatAConfigurationHasThatWasCheckedBefore) {
  const std::string path =
      folder_.Write("sweep.toml",
                    "base = \"run.toml\"\nreport = [\"rule_attackers\"]\n[keys]\n"
                    "attack.kind = [\"none\", \"alie\"]\nattack.fraction = [0.3]\n");
  Output silent;
  const auto again = Prepare(
      *ReadSweepFile(path), sdk::Catalogue::Builtins(), [](const Job&) { return true; }, silent);
  EXPECT_TRUE(again.ok()) << again.status();
}

TEST_F(SweepPlanTest, SaysThatTheCommonModelDecidesOfRulesWithPersonalModels) {
  const auto notes = [&](const std::string& settings, const std::string& rule) {
    return absl::StrJoin(
        Sweep(absl::StrCat(settings, "[keys]\nlocal.lr = [0.1, 0.2]\nalgorithm.name = [\"", rule,
                           "\"]\n"))
            .notes,
        "\n");
  };
  EXPECT_THAT(notes("", "ditto"), AllOf(HasSubstr("test_accuracy decides"), HasSubstr("\"ditto\""),
                                        HasSubstr("clients_test_accuracy")));
  EXPECT_THAT(notes("metric = \"test_accuracy\"\n", "ditto"), testing::Not(HasSubstr("decides")));
  EXPECT_THAT(notes("", "fedavg"), testing::Not(HasSubstr("decides")));
}

TEST_F(SweepPlanTest, RefusesAMetricThatNoRunCanHave) {
  const auto refused = [&](const std::string& metric) {
    return Refused(absl::StrCat("base = \"run.toml\"\nmetric = \"", metric, "\"\n"));
  };
  for (const char* of_devices :
       {"virtual_seconds_to_0.8", "virtual_seconds", "total_virtual_seconds", "late"}) {
    EXPECT_THAT(refused(of_devices), AllOf(HasSubstr(of_devices), HasSubstr("[devices]")));
  }
  EXPECT_THAT(refused("staleness"), HasSubstr("round.mode"));
  for (const char* last : {"train_loss", "train_accuracy", "bytes_up", "seconds"}) {
    EXPECT_THAT(refused(absl::StrCat("best_", last)),
                AllOf(HasSubstr("will have no value"), HasSubstr(absl::StrCat("\"", last, "\""))));
  }
  EXPECT_THAT(refused("best_tran_loss"), HasSubstr("did you mean"));
  EXPECT_THAT(refused("test_accuracy_at_best_val_accuracy"),
              HasSubstr("data.central_val_fraction"));
  EXPECT_THAT(refused("test_accuracy_at_best_test_loss"), HasSubstr("validation rows"));
  EXPECT_THAT(Refused("base = \"run.toml\"\nreport = [\"best_train_loss\"]\n"),
              HasSubstr("report \"best_train_loss\""));
  for (const char* known : {"rounds_to_0.8", "bytes_up_to_0.9", "best_test_loss", "seconds",
                            "rounds_per_second", "total_bytes_down", "train_loss"}) {
    EXPECT_EQ(Sweep(absl::StrCat("metric = \"", known, "\"\n")).plan.metric, known);
  }
}

TEST_F(SweepPlanTest, TakesMetricsOfTheClockAndOfBestRoundsWhereRunsHaveThem) {
  const std::string devices = "[keys]\ndevices.family = [\"phones\"]\n";
  for (const char* metric : {"virtual_seconds_to_0.8", "total_virtual_seconds", "late"})
    EXPECT_EQ(Sweep(absl::StrCat("metric = \"", metric, "\"\n", devices)).plan.metric, metric);
  EXPECT_THAT(Refused("base = \"run.toml\"\nmetric = \"staleness\"\n" + devices),
              HasSubstr("round.mode"));
  const std::string best = "test_accuracy_at_best_clients_val_accuracy";
  const std::string validation =
      "[keys]\ndata.val_fraction = [0.2]\nevaluation.splits = [[\"test\", \"validation\"]]\n";
  EXPECT_EQ(Sweep(absl::StrCat("metric = \"", best, "\"\n", validation)).plan.metric, best);
}

TEST_F(SweepPlanTest, ClientsThatTrainNothingHaveNoMetricOfTraining) {
  const std::string base =
      "[base]\ndata.source = \"synthetic\"\nmodel.layers = [\"linear 10\"]\ncohort.size = 10\n"
      "data.synthetic = {clients = 50, max_size = 50}\n";
  const std::string both = "[keys]\nalgorithm.name = [\"kmeans\", \"fedavg\"]\n" + base;
  EXPECT_THAT(Refused("metric = \"train_loss\"\n" + both),
              AllOf(HasSubstr("\"kmeans\" send sums"), HasSubstr("train_loss")));
  const std::string alone = "[keys]\nalgorithm.name = [\"kmeans\"]\n" + base;
  const auto without = Read(alone + "data.test_fraction = 0.0\n");
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(without->plan.metric, "rule_inertia");
  EXPECT_FALSE(without->plan.higher);
}

TEST_F(SweepPlanTest, SaysWhatSeedsDoNotCover) {
  const std::string seeds = "seeds = [1, 2]\n[keys]\n";
  EXPECT_THAT(Sweep(seeds + "local.lr = [0.1]\n").warnings, testing::IsEmpty());
  EXPECT_THAT(Sweep(seeds + "data.seed = [1]\n").warnings,
              ElementsAre(AllOf(HasSubstr("data.seed = 1"), HasSubstr("\"run\""))));
  EXPECT_THAT(Sweep(seeds + "data.seed = [\"run\"]\n").warnings, testing::IsEmpty());
  EXPECT_THAT(Sweep(seeds + "model.init = [\"zero\"]\n").warnings,
              ElementsAre(HasSubstr("model.init")));
}

}  // namespace
}  // namespace macaw::cli
