// Rules whose clients send sums over their rows (ridge, kmeans, daef) beside all that can surround
// a rule: one table, in which each pair runs to the same bytes for any workers and owners and in a
// replay, or is refused with a sentence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/files.h"
#include "testing/temporary_folder.h"
#include "tests/system/libtorch.h"
#include "tests/system/rows.h"
#include "tests/system/simulation.h"
#include "tests/system/small_run.h"
#include "tests/system/state_runs.h"
#include "tests/system/sums_rules.h"

namespace macaw {
namespace {

using namespace testing_support;
using testing::HasSubstr;
using Row = nlohmann::json;

struct Surrounding {
  std::string name;
  Settings settings;
  // By rule: a part of the sentence that refuses the pair. "all": of each rule without one.
  std::map<std::string, std::string> refused = {};
  // What a row of the run's metrics shows if the surrounding has had an effect; empty: not asked.
  std::function<bool(const Row&)> shows = {};

  std::string RefusalOf(const std::string& rule) const {
    const auto own = refused.find(rule), all = refused.find("all");
    if (own != refused.end()) return own->second;
    return all != refused.end() ? all->second : "";
  }
};
void PrintTo(const Surrounding& surrounding, std::ostream* out) { *out << surrounding.name; }

double In(const Row& row, const char* column) { return row.value(column, 0.0); }

std::vector<Surrounding> Surroundings() {
  const std::string no_update = "no vector of the model's tensors";
  const std::map<std::string, std::string> stale = {
      {"ridge", "what the rule's clients keep goes with the server's vectors of one round"},
      {"all", "the rule is not made for updates of older models"}};
  return {
      {"DrawnCohorts", {}},
      {"AllClients",
       {"cohort.size=11"},
       {},
       [](const Row& row) { return In(row, "clients") == kSumsClients; }},
      {"OverSelection",
       Plus(SmallDevices(), {"cohort.over_selection=2"}),
       {},
       [](const Row& row) { return In(row, "clients") == 5; }},
      {"Deadline",
       Plus(SmallDevices(), {"cohort.size=11", "round.deadline=0.3", "round.quorum=0.1"}),
       {},
       [](const Row& row) { return In(row, "late") > 0 && In(row, "clients") > 0; }},
      {"RoundsDroppedBelowTheQuorum",
       Plus(SmallDevices(), {"cohort.size=11", "devices.round_spread=0.5", "round.deadline=0.3",
                             "round.quorum=0.95", "round.below_quorum=drop", "run.rounds=6"}),
       {},
       [](const Row& row) { return In(row, "clients") == 0; }},
      {"DroppedStragglers",
       {"cohort.straggler_fraction=0.5", "cohort.straggler_policy=drop"},
       {},
       [](const Row& row) { return In(row, "clients") < 5; }},
      {"PoissonCohorts",
       {"cohort.sampling=poisson", "cohort.size=1", "run.rounds=8"},
       {},
       [](const Row& row) { return In(row, "clients") == 0; }},
      {"ClientsDrawnTwice",
       {"cohort.sampling=proportional", "cohort.weight=uniform", "cohort.size=9"},
       {{"ridge", "a client that keeps state can take only one turn"}}},
      {"ChosenByLoss", {"cohort.sampling=power-of-choice"}},
      {"Oort", Plus(SmallDevices(), {"cohort.sampling=oort"})},
      {"NoiseOnFeatures", {"data.client_noise=0.3"}},
      {"FineTuning",
       {"evaluation.fine_tune.steps=3", "evaluation.fine_tune.lr=0.01"},
       {},
       [](const Row& row) { return row.contains("clients_test_tuned_loss"); }},
      {"Float64", {"run.dtype=float64"}},
      {"HostileSums",
       {"attack.kind=scaling", "attack.fraction=0.3", "cohort.size=11"},
       {},
       [](const Row& row) { return In(row, "rule_attackers") > 0; }},
      {"TheHonestSumTurnedAround",
       {"attack.kind=inner-product", "attack.fraction=0.3", "cohort.size=11"},
       {},
       [](const Row& row) { return In(row, "rule_attackers") > 0; }},
      {"ALittleIsEnough",
       {"attack.kind=alie", "attack.fraction=0.3", "cohort.size=11"},
       {},
       [](const Row& row) { return In(row, "rule_attackers") > 0; }},
      {"CodedBroadcast",
       {R"(broadcast.codec=["bits 8"])", "broadcast.of=model"},
       {{"daef", "changes the layers at which clients sum"}}},
      {"LeaveOneOut", {"evaluation.leave_one_out=2"}, {{"daef", "has several phases"}}},
      {"Unlearning", {"evaluation.unlearn=[0,4,9]"}, {{"daef", "has several phases"}}},
      {"CodedUpdates", {R"(update.codec=["bits 8"])"}, {{"all", no_update}}},
      {"Privacy",
       SmallPrivacy(),
       {{"daef", "the rule has several phases a round"}, {"all", "is no update of the model"}}},
      {"Buffered", Plus(SmallDevices(), {"round.mode=buffered"}), stale},
      {"Mixed", Plus(SmallDevices(), {"round.mode=mixed", "cohort.size=1"}), stale},
      {"Overlapped", Plus(SmallDevices(), {"round.mode=overlapped"}), stale},
      {"FrozenTensors",
       {R"(model.frozen=["0.bias"])"},
       {{"all", "model.frozen, trained or adapters leave tensors of the model out"}}},
      {"Drift", {"evaluation.updates=true"}, {{"all", "takes no mean of its clients' updates"}}},
      {"ProgramOfTheOwner",
       {"workers.backend=process", R"(workers.command=["true"])", "workers.give_rows=true"},
       {{"all", "the algorithm does not train: it sums over rows"}}},
  };
}

using Pair = std::tuple<SumsRule, Surrounding>;

class Sums : public testing::TestWithParam<Pair> {
 protected:
  const TemporaryFolder folder_;
};

TEST_P(Sums, BesideEachSurroundingGiveTheSameBytesOrAreRefused) {
  const auto& [rule, surrounding] = GetParam();
  if (surrounding.name == "Float64") MACAW_NEEDS_LIBTORCH();
  const std::string config = SumsConfig(folder_);
  const Settings settings = Plus(rule.settings, surrounding.settings);
  Simulation one("one", WithSettings(config, settings, {"--processes", "1", "--slots", "1"}));
  if (const std::string refusal = surrounding.RefusalOf(rule.name); !refusal.empty()) {
    EXPECT_EQ(one.Wait(), 2) << one.output();
    EXPECT_THAT(one.output(), HasSubstr(refusal));
    return;
  }
  ASSERT_EQ(one.Wait(), 0) << one.output();
  if (surrounding.shows) {
    const std::vector<Row> rows = RowsOf(one);
    EXPECT_TRUE(std::ranges::any_of(rows, surrounding.shows)) << one.metrics();
  }
  Simulation owners("owners", WithSettings(config, settings,
                                           {"--owners", "4", "--processes", "2", "--slots", "2"}));
  ASSERT_EQ(owners.Wait(), 0) << owners.output();
  EXPECT_EQ(StateBytesOf(owners), StateBytesOf(one));
  const auto replay =
      RunMacaw(absl::StrCat("replay ", owners.folder(), " --out ", owners.folder(), "-again"));
  EXPECT_EQ(replay.exit, 0) << replay.text;
  EXPECT_THAT(replay.text, HasSubstr("and the same model: " + one.digest()));
}

INSTANTIATE_TEST_SUITE_P(Of, Sums,
                         testing::Combine(testing::ValuesIn(SumsRules()),
                                          testing::ValuesIn(Surroundings())),
                         [](const auto& test) {
                           return absl::StrCat(std::get<SumsRule>(test.param).name, "_",
                                               std::get<Surrounding>(test.param).name);
                         });

// A client's sums do not depend on the model, so taking them out is training without the client.
TEST(RidgeSums, OfAClientAreTakenOutOfAllRoundsToTheByte) {
  const TemporaryFolder folder;
  Simulation run("run", WithSettings(SumsConfig(folder),
                                     {"algorithm.name=ridge", R"(model.layers=["linear 3"])",
                                      "run.rounds=6", "evaluation.unlearn=[0,4,9]"}));
  ASSERT_EQ(run.Wait(), 0) << run.output();
  const std::vector<std::string> lines =
      absl::StrSplit(*ReadFile(run.folder() + "/contributions.jsonl"), '\n', absl::SkipEmpty());
  const Row last = Row::parse(lines.back());
  ASSERT_FALSE(last["unlearned_client"].empty());
  for (size_t i = 0; i < last["unlearned_client"].size(); ++i) {
    const std::string again = absl::StrCat(run.folder(), "-without-", i);
    const auto replay =
        RunMacaw(absl::StrCat("replay ", run.folder(), " --out ", again, " --quiet --without ",
                              last["unlearned_client"][i].get<uint64_t>()));
    ASSERT_EQ(replay.exit, 0) << replay.text;
    EXPECT_THAT(replay.text, HasSubstr(last["unlearned_model"][i].get<std::string>()));
  }
}

}  // namespace
}  // namespace macaw
