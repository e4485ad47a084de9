// macaw diff on differences that were planted: it names the round, the stage, and what differs
// before.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/files.h"
#include "core/isa.h"
#include "testing/temporary_folder.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

using nlohmann::json;
using ::testing::Contains;
using testing_support::Printed;
using testing_support::RunMacaw;
using testing_support::TemporaryFolder;

constexpr int kOther = 3;  // the client with another row

// Eight clients of six rows. Each takes one step a turn, so its loss is that of the model it got.
std::string Rows(bool changed) {
  std::string text = "client,a,b,kind\n";
  for (int client = 0; client < 8; ++client) {
    for (int row = 0; row < 6; ++row) {
      const bool yes = (client + row) % 2 == 0, other = changed && client == kOther && row == 0;
      absl::StrAppend(&text, "c", client, ",", yes ? 1 : -1, ".", client, ",", row, ".5,",
                      yes != other ? "yes" : "no", "\n");
    }
  }
  return text;
}

constexpr char kJob[] = R"([run]
name = "planted"
rounds = 6
seed = 3
client_records = true
[data]
source = "csv"
path = "$rows"
client_column = "client"
test_fraction = 0.0
[model]
layers = ["linear 32", "tanh", "linear 24", "tanh", "linear 2"]
[cohort]
size = 3
[local]
lr = 0.2
)";

struct Planted {
  std::string name;
  std::vector<std::string> set;  // KEY=VALUE of the second run
  int round = 0;
  std::string stage;
  std::string differs;  // a key of the configuration, or a fact, that the diff has to name
};

class PlantedDifferences : public testing::Test {
 protected:
  void SetUp() override {
    folder_.Write("rows.csv", Rows(false));
    folder_.Write("changed.csv", Rows(true));
    folder_.Write("job.toml", absl::StrReplaceAll(kJob, {{"$rows", folder_ / "rows.csv"}}));
    Run("first", {});
  }

  void Run(const std::string& out, const std::vector<std::string>& set) {
    std::string command = absl::StrCat("simulate ", folder_ / "job.toml", " -q --out ",
                                       folder_ / out, " --processes 1 --slots 1");
    for (const std::string& one : set) absl::StrAppend(&command, " --set '", one, "'");
    const Printed printed = RunMacaw(command);
    ASSERT_EQ(printed.exit, 0) << printed.text;
  }
  // Of the first run and another one.
  json Diff(const std::string& other, int code) {
    const Printed printed =
        RunMacaw(absl::StrCat("diff --json ", folder_ / "first", " ", folder_ / other));
    EXPECT_EQ(printed.exit, code) << printed.text;
    return json::parse(printed.text, nullptr, /*allow_exceptions=*/false);
  }
  // The keys of the configuration and the facts that a diff names.
  static std::vector<std::string> Named(const json& diff) {
    std::vector<std::string> names;
    for (const char* list : {"settings", "facts"}) {
      for (const json& one : diff[list]) names.push_back(one["name"]);
    }
    return names;
  }

  const TemporaryFolder folder_;
};

class OfAKey : public PlantedDifferences, public testing::WithParamInterface<Planted> {};

TEST_P(OfAKey, IsFoundInItsRound) {
  const Planted& planted = GetParam();
  Run("second", planted.set);
  const json diff = Diff("second", 1);
  ASSERT_TRUE(diff.is_object());
  EXPECT_EQ(diff["parting"]["round"], planted.round) << diff.dump(1);
  EXPECT_EQ(diff["parting"]["stage"], planted.stage) << diff.dump(1);
  EXPECT_THAT(Named(diff), Contains(planted.differs));
}

INSTANTIATE_TEST_SUITE_P(
    ARun, OfAKey,
    testing::Values(Planted{"Seed", {"run.seed=4"}, 1, "draw", "run.seed"},
                    Planted{"FirstWeights", {"model.seed=4"}, 1, "start", "model.seed"},
                    Planted{
                        "WeightsOfClients", {"cohort.weight=uniform"}, 1, "draw", "cohort.weight"},
                    // From round 5 on the rate is half.
                    Planted{"Rate",
                            {R"(local.lr_schedule={kind="step",gamma=0.5,every=4})"},
                            5,
                            "training",
                            "local.lr_schedule.gamma"},
                    Planted{"Batches", {"local.batch_size=3"}, 1, "training", "local.batch_size"},
                    Planted{"Clipping", {"local.clip_norm=0.3"}, 1, "training", "local.clip_norm"},
                    Planted{"Codec", {R"(update.codec=["bits 8"])"}, 1, "training", "update.codec"},
                    // The server's momentum changes its second step.
                    Planted{"Momentum", {"algorithm.name=fedavgm"}, 2, "model", "algorithm.name"},
                    Planted{"Rounds", {"run.rounds=7"}, 7, "end", "run.rounds"}),
    [](const testing::TestParamInfo<Planted>& info) { return info.param.name; });

TEST_F(PlantedDifferences, OfOneRowAreThoseOfItsClient) {
  Run("second", {absl::StrCat("data.path=", folder_ / "changed.csv")});
  const json diff = Diff("second", 1);
  ASSERT_EQ(diff["parting"]["clients"].size(), 1u) << diff.dump(1);
  EXPECT_EQ(diff["parting"]["clients"][0]["client"], kOther);
  EXPECT_EQ(diff["parting"]["stage"], "training");
  EXPECT_THAT(Named(diff), Contains("data digest"));
}

TEST_F(PlantedDifferences, OfRoundingNameTheProfile) {
  const std::vector<Isa> isas = SupportedIsas();
  if (isas.size() < 3) GTEST_SKIP() << "this processor has no second instruction set";
  Run("second", {absl::StrCat("workers.instruction_set=", Name(isas[1]))});
  const json diff = Diff("second", 1);
  EXPECT_EQ(diff["parting"]["round"], 1) << diff.dump(1);
  EXPECT_EQ(diff["parting"]["stage"], "training");
  EXPECT_THAT(Named(diff), Contains("numeric profile"));
}

// The bits are the same, and the diff says that the programs are not.
TEST_F(PlantedDifferences, OfTheProgramsVersionAreNamed) {
  const std::string second = folder_ / "second";
  std::filesystem::copy(folder_ / "first", second, std::filesystem::copy_options::recursive);
  json summary = json::parse(*ReadFile(second + "/summary.json"));
  summary["program"] = "macaw-server 0.0.1";
  folder_.Write("second/summary.json", summary.dump());
  EXPECT_THAT(Named(Diff("second", 0)), Contains("program"));
}

}  // namespace
}  // namespace macaw
