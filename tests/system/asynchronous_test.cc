// Virtual time and rounds that do not wait for each other, in whole runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/files.h"
#include "core/safetensors.h"
#include "testing/program.h"
#include "testing/temporary_folder.h"
#include "tests/system/any_workers.h"
#include "tests/system/libtorch.h"
#include "tests/system/rows.h"
#include "tests/system/simulation.h"
#include "tests/system/small_run.h"
#include "tests/system/state_runs.h"

namespace macaw {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing_support::ExpectTheSameBytesForAnyWorkers;
using testing_support::Pauses;
using testing_support::Plus;
using testing_support::ResumeWithoutPauses;
using testing_support::RoundDone;
using testing_support::RowsOf;
using testing_support::RunMacaw;
using testing_support::Simulation;
using testing_support::SmallDevices;
using testing_support::SmallRun;
using testing_support::StateBytesOf;
using testing_support::TemporaryFolder;
using testing_support::WithSettings;
using testing_support::WriteConfig;

using Settings = std::vector<std::string>;

const Settings kOnDevices = SmallRun(40, 6, SmallDevices());
const Settings kBuffered =
    Plus(kOnDevices, {"round.mode=buffered", "round.concurrency=15", "run.rounds=8"});

// For a budget that is spent in round 6, or 22.
const Settings kBudget = {"run.rounds=40", "server.durability=commit"};

const Settings kOverlapped = Plus(kOnDevices, {"round.mode=overlapped", "run.rounds=8"});

// Six clients a round on two slots: fourteen rounds of these are ten seconds. With one client a
// round there are more rounds of longer pauses.
const Settings kLong = Plus(Pauses("0.25"), {"run.rounds=16"});
const Settings kLongOfOne = Plus(Pauses("0.5"), {"run.rounds=24"});

struct Timed {
  const char* name;
  Settings settings;
  Settings killed = kLong;  // beside those, where it is killed
};
void PrintTo(const Timed& timed, std::ostream* out) { *out << timed.name; }

class VirtualTime : public testing::TestWithParam<Timed> {};

TEST_P(VirtualTime, GivesTheSameBytesForAnyWorkersAndInAReplay) {
  ExpectTheSameBytesForAnyWorkers(WriteConfig("time"), GetParam().settings);
}

// It is computed again from the configuration, and each round takes the seconds that its row says.
TEST_P(VirtualTime, IsDrawnFromTheFolderOfTheRun) {
  Simulation run("run", WithSettings(WriteConfig("drawn"), GetParam().settings));
  ASSERT_EQ(run.Wait(), 0) << run.output();
  const std::string file = run.folder() + "-virtual.json";
  const auto printed =
      RunMacaw(absl::StrCat("timeline ", run.folder(), " --virtual ", file, " --rounds 1:1000"));
  ASSERT_EQ(printed.exit, 0) << printed.text;
  double steps = 0, end = 0;
  std::set<std::string> parts;
  for (const nlohmann::json& event : nlohmann::json::parse(*ReadFile(file))) {
    if (event["ph"] == "i") ++steps;
    if (event["ph"] == "i") end = event["ts"].get<double>() * 1e-6;
    if (event["ph"] == "X" && event["pid"] == 1) parts.insert(event["name"]);
  }
  EXPECT_EQ(steps, run.summary()["rounds"]);
  EXPECT_NEAR(end, run.summary()["virtual_seconds"], 1e-3);
  for (const char* part : {"download", "work", "upload"}) EXPECT_TRUE(parts.contains(part)) << part;
}

TEST_P(VirtualTime, GoesOnAfterAKill) {
  const Settings settings = Plus(GetParam().settings, GetParam().killed);
  const std::string config = WriteConfig("kill");
  Simulation whole("whole",
                   WithSettings(config, Plus(settings, {"emulation.pause_probability=0"})));
  ASSERT_EQ(whole.Wait(), 0) << whole.output();
  EXPECT_GE(whole.summary()["rounds"], 16) << "so that it is at work when it is killed";
  Simulation killed("killed", WithSettings(config, settings));
  ASSERT_TRUE(killed.WaitForEvent(RoundDone(2)));
  killed.Signal(SIGKILL);
  EXPECT_EQ(killed.Wait(), 128 + SIGKILL) << killed.output();
  Simulation resumed("resumed", ResumeWithoutPauses(killed));
  ASSERT_EQ(resumed.Wait(), 0) << resumed.output();
  EXPECT_EQ(StateBytesOf(resumed), StateBytesOf(whole));
}

INSTANTIATE_TEST_SUITE_P(
    Of, VirtualTime,
    testing::Values(
        Timed{"Rounds", kOnDevices},
        Timed{
            "OverSelectionUnderADeadline",
            Plus(kOnDevices, {"cohort.over_selection=2", "round.deadline=20", "round.quorum=0.5"})},
        Timed{"Buffered", kBuffered},
        Timed{"BufferedGroups", Plus(kBuffered, {"round.refill=4", "round.max_staleness=2",
                                                 "cohort.sampling=available"})},
        Timed{"BufferedAdamWithACodec",
              Plus(kBuffered, {"algorithm.name=fedadam", R"(update.codec=["topk 0.1", "bits 8"])",
                               "update.feedback=residual", R"(broadcast.codec=["bits 8"])",
                               "broadcast.of=model"})},
        Timed{"Mixed", Plus(kBuffered, {"round.mode=mixed", "cohort.size=1"}), kLongOfOne},
        Timed{"MixedFromACodedModelWithNorms",
              Plus(kBuffered, {"round.mode=mixed", "cohort.size=1", R"(broadcast.codec=["bits 8"])",
                               "broadcast.of=model", "evaluation.updates=true"}),
              kLongOfOne},
        Timed{"MixedWithFrozenTensors",
              Plus(kBuffered, {"round.mode=mixed", "cohort.size=1", R"(model.frozen=["1.*"])"}),
              kLongOfOne},
        Timed{"BufferedOfOwners", Plus(kBuffered, {"workers.owners=3"})},
        Timed{"BufferedWithAnAttack",
              Plus(kBuffered, {"attack.kind=sign-flip", "attack.fraction=0.2"})},
        Timed{"BufferedUntilItStops",
              Plus(kBuffered,
                   {"run.rounds=40", "run.stop.metric=test_accuracy", "run.stop.at_least=0.4"}),
              Plus(Pauses("0.25"), {"run.stop.at_least=0.85"})},
        Timed{"RoundsUntilABudgetIsSpent",
              Plus(Plus(kOnDevices, kBudget), {"run.budget.virtual_seconds=250"}),
              Plus(Pauses("0.25"), {"run.budget.virtual_seconds=700"})},
        Timed{"BufferedUntilABudgetIsSpent",
              Plus(Plus(kBuffered, kBudget), {"run.budget.virtual_seconds=17"}),
              Plus(Pauses("0.25"), {"run.budget.virtual_seconds=60"})},
        Timed{"OverlappedUntilABudgetIsSpent",
              Plus(Plus(kOverlapped, kBudget), {"run.budget.virtual_seconds=250"}),
              Plus(Pauses("0.25"), {"run.budget.virtual_seconds=700"})},
        Timed{"Overlapped", kOverlapped},
        Timed{"OverlappedWithMomentumAndACodec",
              Plus(kOverlapped, {"algorithm.name=fedavgm", R"(update.codec=["topk 0.1", "bits 8"])",
                                 "update.feedback=residual", R"(broadcast.codec=["bits 8"])",
                                 "broadcast.of=model", "workers.owners=2"})},
        Timed{"OverlappedUnderADeadline",
              Plus(kOverlapped,
                   {"cohort.over_selection=2", "round.deadline=20", "round.quorum=0.5"})},
        Timed{"OverlappedAndPrivate",
              Plus(kOverlapped, {"cohort.sampling=poisson", "cohort.weight=uniform",
                                 "privacy.mechanism=gaussian", "privacy.clip=1", "privacy.noise=2",
                                 "privacy.delta=0.001"})}),
    [](const auto& info) { return std::string(info.param.name); });

// With as many places as a step has arrivals, each group is a synchronous round.
TEST(Buffered, WithASynchronousRoundsPlacesIsTheSynchronousRunToTheByte) {
  const std::string config = WriteConfig("same");
  for (const std::string rule : {"fedavg", "fedprox", "fedadam"}) {
    const Settings settings =
        Plus(kOnDevices, {absl::StrCat("algorithm.name=", rule), "run.rounds=5"});
    Simulation rounds("rounds", WithSettings(config, settings));
    ASSERT_EQ(rounds.Wait(), 0) << rounds.output();
    Simulation buffered("buffered", WithSettings(config, Plus(settings, {"round.mode=buffered",
                                                                         "round.concurrency=6",
                                                                         "round.refill=6"})));
    ASSERT_EQ(buffered.Wait(), 0) << buffered.output();
    EXPECT_EQ(buffered.digest(), rounds.digest()) << rule;
    std::vector<nlohmann::json> rows = RowsOf(buffered);
    for (nlohmann::json& row : rows) {
      EXPECT_EQ(row["staleness"], 0);
      row.erase("staleness");
    }
    const std::vector<nlohmann::json> synchronous = RowsOf(rounds);
    ASSERT_EQ(rows.size(), synchronous.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      // The same sums of seconds, in another order.
      EXPECT_NEAR(rows[i]["virtual_seconds"], synchronous[i]["virtual_seconds"], 1e-9);
      rows[i]["virtual_seconds"] = synchronous[i]["virtual_seconds"];
      EXPECT_EQ(rows[i], synchronous[i]);
    }
  }
}

// The only weight of a run's model.
double WeightOf(const Simulation& run) {
  const absl::StatusOr<SafetensorsFile> file =
      SafetensorsFile::Open(run.folder() + "/model.safetensors");
  EXPECT_TRUE(file.ok()) << file.status();
  double weight = 0;
  const std::span<const std::byte> bytes = file->tensors().begin()->second.bytes;
  EXPECT_EQ(bytes.size(), sizeof(weight));
  std::memcpy(&weight, bytes.data(), sizeof(weight));
  return weight;
}

// Clients with a row of x = 1 each: a with y = 0.5, b with y = 1.5. Turns take 2 and 3 seconds.
std::string PaperConfig(const TemporaryFolder& folder, absl::string_view more_rows,
                        absl::string_view more_devices) {
  const std::string data =
      folder.Write("data.csv", absl::StrCat("who,x,y\na,1,0.5\nb,1,1.5\n", more_rows));
  const std::string devices =
      folder.Write("devices.csv", absl::StrCat("device,samples_per_s,down_kB_s,up_kB_s\n"
                                               "a,0.5,1e9,1e9\nb,0.3333333333333333,1e9,1e9\n",
                                               more_devices));
  return folder.Write("paper.toml", absl::StrCat(R"([run]
rounds = 3
dtype = "float64"
[data]
source = "csv"
path = ")",
                                                 data, R"("
client_column = "who"
label_column = "y"
[model]
layers = ["linear 1 nobias"]
init = "zero"
[cohort]
size = 2
weight = "uniform"
[devices]
family = "file"
file = ")",
                                                 devices, R"("
assign = "name"
round_spread = 0.0
[local]
epochs = 1
batch_size = 1
lr = 0.25
)"));
}

// Three clients with a row of x = 1 each and a model of one weight, on devices whose turns take 2,
// 3 and 7 seconds; two arrivals a step. A turn takes half of the way to the client's y.
//   step 1 at 3: a and b from x₀ = 0:     ((0.5 − 0) + (1.5 − 0))/4            x₁ = 0.5
//   step 2 at 6: a and b from x₁:         ((0.5 − 0.5) + (1.5 − 0.5))/4        x₂ = 0.75
//   step 3 at 8: c, who began from x₀, at 7, and a from x₂ at 8:
//                                         ((4.5 − 0)/√3 + (0.5 − 0.75))/4
TEST(Buffered, IsThatOnPaper) {
  MACAW_NEEDS_LIBTORCH();  // float64
  const TemporaryFolder folder;
  const std::string config = PaperConfig(folder, "c,1,4.5\n", "c,0.14285714285714285,1e9,1e9\n");
  Simulation run("paper", WithSettings(config, {"round.mode=buffered", "round.concurrency=3"}));
  ASSERT_EQ(run.Wait(), 0) << run.output();
  const std::vector<nlohmann::json> rows = RowsOf(run);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_NEAR(rows[0]["virtual_seconds"], 3, 1e-6);
  EXPECT_NEAR(rows[1]["virtual_seconds"], 3, 1e-6);
  EXPECT_NEAR(rows[2]["virtual_seconds"], 2, 1e-6);
  EXPECT_EQ(rows[0]["staleness"], 0);
  EXPECT_EQ(rows[1]["staleness"], 0);
  EXPECT_EQ(rows[2]["staleness"], 1) << "a 0, c 2";
  EXPECT_NEAR(WeightOf(run), 0.75 + (4.5 / std::sqrt(3) - 0.25) / 4, 1e-12);
}

// Two clients in each round. A turn takes half of the way to the client's y:
//   x₁ = x₀ + ((0.5 − 0) + (1.5 − 0))/4 = 0.5, m₁ = 0.5
//   x₂ = x₁ + m₂, from x₀ again:              m₂ = 0.5·m₁ + 0.5 = 0.75,   x₂ = 1.25
//   x₃ = x₂ + m₃, from x₁ = 0.5:              m₃ = 0.5·m₂ + 0.25 = 0.625, x₃ = 1.875
TEST(Overlapped, IsThatOnPaper) {
  MACAW_NEEDS_LIBTORCH();  // float64
  const TemporaryFolder folder;
  Simulation run("paper", WithSettings(PaperConfig(folder, "", ""),
                                       {"round.mode=overlapped", "algorithm.name=fedavgm",
                                        "algorithm.fedavgm.beta=0.5"}));
  ASSERT_EQ(run.Wait(), 0) << run.output();
  const std::vector<nlohmann::json> rows = RowsOf(run);
  ASSERT_EQ(rows.size(), 3u);
  for (const nlohmann::json& row : rows) EXPECT_NEAR(row["virtual_seconds"], 3, 1e-6);
  EXPECT_EQ(rows[0]["staleness"], 0);
  EXPECT_EQ(rows[1]["staleness"], 1);
  EXPECT_EQ(rows[2]["staleness"], 1);
  EXPECT_NEAR(WeightOf(run), 1.875, 1e-12);
}

// A round that overlaps has the rate, the steps and the stragglers of a round that waits.
TEST(Overlapped, DoesTheWorkOfItsOwnRounds) {
  const std::string config = WriteConfig("work");
  const Settings steps =
      Plus(kOnDevices, {"run.rounds=5", "local.steps=2", "local.qsr=0.1",
                        "local.lr_schedule.kind=exponential", "local.lr_schedule.gamma=0.8"});
  for (const Settings& settings :
       {steps, Plus(kOnDevices, {"run.rounds=5", "cohort.straggler_fraction=0.5"}),
        Plus(kOnDevices,
             {"run.rounds=5", "cohort.straggler_fraction=0.5", "cohort.straggler_policy=drop"})}) {
    Simulation waits("waits", WithSettings(config, settings));
    ASSERT_EQ(waits.Wait(), 0) << waits.output();
    Simulation overlaps("overlaps",
                        WithSettings(config, Plus(settings, {"round.mode=overlapped"})));
    ASSERT_EQ(overlaps.Wait(), 0) << overlaps.output();
    const std::vector<nlohmann::json> before = RowsOf(waits), rows = RowsOf(overlaps);
    ASSERT_EQ(rows.size(), before.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      for (const char* column : {"clients", "examples", "steps"})
        EXPECT_EQ(rows[i][column], before[i][column]) << column << " in round " << i + 1;
    }
  }
}

// With networks that take no time and equal turns the clock shows the work alone.
TEST(VirtualTime, IsThatOfTheRulesWork) {
  const std::string config = WriteConfig("rules");
  const auto seconds = [&](const Settings& more) {
    Simulation run(
        "rule", WithSettings(
                    config, Plus(Plus(kOnDevices, {"devices.down_kB_s=1e12", "devices.up_kB_s=1e12",
                                                   "devices.round_spread=0", "run.rounds=2"}),
                                 more)));
    EXPECT_EQ(run.Wait(), 0) << run.output();
    return run.summary()["virtual_seconds"].get<double>();
  };
  const double fedavg = seconds({});
  EXPECT_GT(fedavg, 0);
  EXPECT_NEAR(seconds({"algorithm.name=ditto"}) / fedavg, 2, 1e-4);
  EXPECT_NEAR(seconds({"algorithm.name=qfedavg"}) / fedavg, 1 + 1.0 / 3, 1e-4);
  EXPECT_NEAR(seconds({"algorithm.name=fedrep", "algorithm.fedrep.head_epochs=3"}) / fedavg, 4,
              1e-4);
}

TEST(VirtualTime, IsInTheSummaryAndInComparisons) {
  const std::string config = WriteConfig("summary");
  Simulation run("run", WithSettings(config, kOnDevices));
  ASSERT_EQ(run.Wait(), 0) << run.output();
  double sum = 0;
  for (const nlohmann::json& row : RowsOf(run)) sum += row["virtual_seconds"].get<double>();
  EXPECT_GT(sum, 0);
  EXPECT_DOUBLE_EQ(run.summary()["virtual_seconds"], sum);
  const auto compared =
      RunMacaw(absl::StrCat("compare ", run.folder(), " --metric total_virtual_seconds"));
  EXPECT_EQ(compared.exit, 0) << compared.text;
  EXPECT_THAT(compared.text, HasSubstr("total_virtual_seconds"));
  Simulation without("without", {config});
  ASSERT_EQ(without.Wait(), 0) << without.output();
  EXPECT_FALSE(without.summary().contains("virtual_seconds"));
  EXPECT_FALSE(RowsOf(without)[0].contains("virtual_seconds"));
}

class Budgeted : public VirtualTime {};

TEST_P(Budgeted, EndsAfterTheFirstRoundThatHasSpentIt) {
  const std::string config = WriteConfig("budget");
  const Settings settings = Plus(GetParam().settings, {"run.rounds=6"});
  Simulation whole("whole", WithSettings(config, settings));
  ASSERT_EQ(whole.Wait(), 0) << whole.output();
  const std::vector<nlohmann::json> rows = RowsOf(whole);
  ASSERT_EQ(rows.size(), 6U);
  double spent = 0;
  for (size_t i = 0; i < 3; ++i) spent += rows[i]["virtual_seconds"].get<double>();
  const auto rounds_within = [&](double budget) {
    const Settings more = {absl::StrCat("run.budget.virtual_seconds=", budget)};
    Simulation run("budgeted", WithSettings(config, Plus(settings, more)));
    EXPECT_EQ(run.Wait(), 0) << run.output();
    const std::vector<nlohmann::json> mine = RowsOf(run);
    for (size_t i = 0; i < mine.size(); ++i)
      EXPECT_EQ(mine[i]["test_loss"], rows[i]["test_loss"]) << i;
    return mine.size();
  };
  EXPECT_EQ(rounds_within(spent - 0.001), 3U);
  EXPECT_EQ(rounds_within(spent + 0.001), 4U);
}

INSTANTIATE_TEST_SUITE_P(Of, Budgeted,
                         testing::Values(Timed{"Rounds", kOnDevices}, Timed{"Buffered", kBuffered},
                                         Timed{"Overlapped", kOverlapped}),
                         [](const auto& info) { return std::string(info.param.name); });

// A deadline in virtual time decides who counts, and is no time of this machine.
TEST(VirtualTime, ADeadlineLeavesOutSlowDevices) {
  const std::string config = WriteConfig("deadline");
  Simulation all("all", WithSettings(config, kOnDevices));
  ASSERT_EQ(all.Wait(), 0) << all.output();
  Simulation timed(
      "timed", WithSettings(config, Plus(kOnDevices, {"round.deadline=10", "round.quorum=0.1"})));
  ASSERT_EQ(timed.Wait(), 0) << timed.output();
  double late = 0;
  for (const nlohmann::json& row : RowsOf(timed)) {
    late += row["late"].get<double>();
    EXPECT_EQ(row["clients"].get<double>() + row["late"].get<double>(), 6);
    EXPECT_TRUE(row["virtual_seconds"].get<double>() <= 10 || row["clients"] == 1) << row;
  }
  EXPECT_GT(late, 0);
  EXPECT_LT(timed.summary()["virtual_seconds"], all.summary()["virtual_seconds"]);
}

TEST(VirtualTime, AnotherDeadlineIsAnotherRun) {
  const std::string config = WriteConfig("resume");
  Simulation run("run", WithSettings(config, Plus(kOnDevices, {"round.deadline=10"})));
  ASSERT_EQ(run.Wait(), 0) << run.output();
  Simulation resumed("resumed",
                     {"--resume", run.folder(), "--rounds", "5", "--set", "round.deadline=20"});
  EXPECT_NE(resumed.Wait(), 0);
  EXPECT_THAT(resumed.output(), HasSubstr("a run that goes on keeps its round.deadline"));
}

TEST(Asynchronous, IsRefusedWhereItCannotBe) {
  const std::string config = WriteConfig("refused");
  const auto refused = [&](const Settings& settings) {
    Simulation run("refused", WithSettings(config, settings));
    EXPECT_NE(run.Wait(), 0);
    return run.output();
  };
  EXPECT_THAT(refused({"round.mode=buffered"}), HasSubstr("[devices]"));
  EXPECT_THAT(refused(Plus(kBuffered, {"algorithm.name=scaffold"})),
              HasSubstr("what the rule's clients keep"));
  EXPECT_THAT(refused(Plus(kBuffered, {R"(update.codec=["topk 0.1"])", "update.feedback=ef21"})),
              HasSubstr("round.mode updates are of older models"));
  EXPECT_THAT(refused(Plus(kBuffered, {"round.concurrency=2"})), HasSubstr("fewer than"));
  EXPECT_THAT(refused({"round.concurrency=20"}),
              AllOf(HasSubstr("round.concurrency"), HasSubstr("round.mode")));
}

}  // namespace
}  // namespace macaw
