#include "algorithms/around/attack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "algorithms/builtin.h"
#include "tests/algorithms/attack_util.h"
#include "tests/algorithms/robust_util.h"

namespace macaw::algorithms {
namespace {

// ---- who is hostile

TEST(HostileClients, AreTheFloorOfTheFractionAndDependOnTheSeedAlone) {
  const auto set_of = [](double fraction, uint64_t clients, uint64_t seed) {
    const AttackConfig attack = Of("sign-flip", fraction);
    const HostileClients hostile(attack, clients, seed);
    std::set<uint64_t> set;
    for (uint64_t client = 0; client < clients; ++client) {
      if (hostile.Contains(ClientId(client))) set.insert(client);
    }
    EXPECT_EQ(set.size(), hostile.count());
    EXPECT_FALSE(hostile.Contains(ClientId(clients)));
    return set;
  };
  EXPECT_EQ(set_of(.29, 100, 1).size(), 29u);  // .29 · 100 is 28.99… in double
  EXPECT_EQ(set_of(.45, 21, 1).size(), 9u);
  EXPECT_TRUE(set_of(.05, 19, 1).empty());
  EXPECT_EQ(set_of(.3, 1000, 1), set_of(.3, 1000, 1));
  EXPECT_NE(set_of(.3, 1000, 1), set_of(.3, 1000, 2));
  EXPECT_EQ(HostileClients(Of("none", .5), 10, 1).count(), 0u);
}

// ---- numbers by hand: what each of the four clients sends in round 1, and what the model becomes

Numbers AfterOneRound(const AttackConfig& attack, const std::string& rule,
                      std::map<std::string, ParameterValue> parameters = {}) {
  RoundLoop loop = Q4Under(attack, rule, {.parameters = std::move(parameters)});
  EXPECT_TRUE(loop.Rounds(1).ok());
  EXPECT_EQ(loop.metrics().at("attackers"), 2);
  return loop.Model();
}

TEST(SignFlipAndScaling, MultiplyWhatHonestClientsWouldSend) {
  for (const auto& [kind, times] : {std::pair("sign-flip", -2.0), std::pair("scaling", 2.0),
                                    std::pair("label-flip", 2.0), std::pair("backdoor", 2.0)}) {
    const AttackConfig attack = Of(kind, .5, 2);
    const FirstRound round(attack, "fedavg");
    const Numbers expected =
        round.Mean(true, [&](size_t k, size_t i) { return times * round.honest[k][i]; });
    EXPECT_LT(Distance(AfterOneRound(attack, "fedavg"), expected), 1e-12) << kind;
  }
}

TEST(InnerProduct, SendsTheHonestMeanBackwards) {
  const AttackConfig attack = Of("inner-product", .5, .7);
  for (const auto& [rule, weighted] :
       {std::pair("fedavg", true), std::pair("trimmed_mean", false)}) {
    const FirstRound round(attack, "fedavg");
    const Numbers expected = round.Mean(
        weighted, [&](size_t, size_t i) { return -.7 * round.Statistics(i, weighted).first; });
    // Without a cut the trimmed mean is the plain mean of collected rows.
    const Numbers got =
        weighted ? AfterOneRound(attack, rule) : AfterOneRound(attack, rule, {{"beta", 0.0}});
    EXPECT_LT(Distance(got, expected), 1e-12) << rule;
  }
}

TEST(Alie, StaysWithinTheHonestClientsDeviation) {
  AttackConfig attack = Of("alie", .5);
  attack.z = 1.5;
  for (const auto& [rule, weighted] :
       {std::pair("fedavg", true), std::pair("trimmed_mean", false)}) {
    const FirstRound round(attack, "fedavg");
    const Numbers expected = round.Mean(weighted, [&](size_t, size_t i) {
      const auto [mean, deviation] = round.Statistics(i, weighted);
      return mean - 1.5 * deviation;
    });
    const Numbers got =
        weighted ? AfterOneRound(attack, rule) : AfterOneRound(attack, rule, {{"beta", 0.0}});
    EXPECT_LT(Distance(got, expected), 1e-9) << rule;
  }
}

TEST(Alie, TakesTheDeviationsOfItsPaper) {
  // n = 50, m = 24: s = 2, Φ⁻¹(24/26); n = 50, m = 12: s = 14, Φ⁻¹(24/38).
  EXPECT_NEAR(AlieDeviations(50, 24), 1.4260768722728, 1e-9);
  EXPECT_NEAR(AlieDeviations(50, 12), 0.3360381403718, 1e-9);
  EXPECT_NEAR(AlieDeviations(10, 3), 0.1800123697927, 1e-9);
  EXPECT_NEAR(AlieDeviations(50, 0), 0, 1e-9);  // would be negative
  EXPECT_NEAR(AlieDeviations(10, 6), 3, 1e-9);  // a majority
  // Without attack.z, by the round's counts: n = 4, m = 2, Φ⁻¹(1/2) = 0.
  const AttackConfig attack = Of("alie", .5);
  const FirstRound round(attack, "fedavg");
  const Numbers expected =
      round.Mean(true, [&](size_t, size_t i) { return round.Statistics(i, true).first; });
  EXPECT_LT(Distance(AfterOneRound(attack, "fedavg"), expected), 1e-9);
}

TEST(Alie, SaysItsDeviationsAndThatNoneAreNoAttack) {
  for (const auto& [rule, parameters] :
       {std::pair("fedavg", std::map<std::string, ParameterValue>()),
        std::pair("trimmed_mean", std::map<std::string, ParameterValue>{{"beta", 0.0}})}) {
    RoundLoop loop = Q4Under(Of("alie", .5), rule, {.parameters = parameters});
    ASSERT_TRUE(loop.Rounds(1).ok());
    EXPECT_EQ(loop.metrics().at("attack_z"), 0) << rule;
    AttackConfig attack = Of("alie", .5);
    attack.z = 1.5;
    RoundLoop given = Q4Under(attack, rule, {.parameters = parameters});
    ASSERT_TRUE(given.Rounds(1).ok());
    EXPECT_EQ(given.metrics().at("attack_z"), 1.5) << rule;
  }
  RoundLoop other = Q4Under(Of("inner-product", .5), "fedavg");
  ASSERT_TRUE(other.Rounds(1).ok());
  EXPECT_EQ(other.metrics().count("attack_z"), 0u);

  algorithms::Setup setup;
  setup.cohort.size = 20;
  setup.layout = ParameterLayout::Scalars("w", 2, DType::kF32);
  const auto notes = [&](const AttackConfig& attack, uint64_t clients) {
    setup.clients = clients;
    return Under(attack, "fedavg", clients).notes(setup);
  };
  // n = 20, m = 2: s = 9, Φ⁻¹(9/18) = 0.
  EXPECT_THAT(notes(Of("alie", .1), 20),
              testing::Contains(testing::AllOf(testing::HasSubstr("2 of a round's 20 clients"),
                                               testing::HasSubstr("no attack"))));
  EXPECT_THAT(notes(Of("alie", .3), 200),
              testing::Contains(testing::AllOf(testing::HasSubstr("6 of a round's 20 clients"),
                                               testing::HasSubstr("less 0.366 standard"),
                                               testing::Not(testing::HasSubstr("no attack")))));
}

TEST(FreeRider, DoesNotTrainAndSendsNoise) {
  AttackConfig attack = Of("free-rider", .5);
  const FirstRound round(attack, "fedavg");
  const Numbers expected = round.Mean(true, [](size_t, size_t) { return 0.0; });
  EXPECT_LT(Distance(AfterOneRound(attack, "fedavg"), expected), 1e-12);
  attack.noise = .1;
  const Numbers noisy = AfterOneRound(attack, "fedavg");
  EXPECT_GT(Distance(noisy, expected), 1e-4);
  EXPECT_LT(Distance(noisy, expected), .5);
  EXPECT_EQ(AfterOneRound(attack, "fedavg"), noisy);
  // The noise of another round is another one.
  RoundLoop free = Q4Under(Of("free-rider", .5), "fedavg"), loud = Q4Under(attack, "fedavg");
  std::vector<Numbers> noise;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(free.Rounds(1).ok());
    const Numbers before = loud.Model();
    ASSERT_TRUE(loud.Rounds(1).ok());
    noise.push_back({loud.Model()[0] - before[0], loud.Model()[1] - before[1]});
  }
  EXPECT_GT(Distance(noise[0], noise[1]), 1e-4);
}

TEST(FreeRider, KeepsNoStateAndReportsZeroMetrics) {
  RoundLoop loop = Q4Under(Of("free-rider", .5), "scaffold");
  ASSERT_TRUE(loop.Rounds(3).ok());
  const HostileClients hostile(Of("free-rider", .5), 4, kSeed);
  for (size_t client = 0; client < 4; ++client) {
    const bool still = loop.State(client, 0) == Numbers{0, 0};
    EXPECT_EQ(still, hostile.Contains(ClientId(client))) << client;
  }
}

TEST(Attacks, ReachEveryChannelAndLeaveStatesHonest) {
  // SCAFFOLD: x takes the plain mean of Δ, c the sum of Δc over N. In round 1, Δc_i is c_i.
  const AttackConfig attack = Of("inner-product", .5, .7);
  const FirstRound round(attack, "scaffold");
  RoundLoop honest(Builtin("scaffold"), Q4(), {}), loop = Q4Under(attack, "scaffold");
  ASSERT_TRUE(honest.Rounds(1).ok());
  ASSERT_TRUE(loop.Rounds(1).ok());
  EXPECT_LT(Distance(loop.Model(), round.Mean(false,
                                              [&](size_t, size_t i) {
                                                return -.7 * round.Statistics(i, false).first;
                                              })),
            1e-12);
  FirstRound controls = round;
  for (size_t k = 0; k < 4; ++k) {
    controls.honest[k] = honest.State(k, 0);
    EXPECT_EQ(loop.State(k, 0), honest.State(k, 0));
  }
  EXPECT_LT(Distance(loop.Saved("control"),
                     controls.Mean(false,
                                   [&](size_t, size_t i) {
                                     return -.7 * controls.Statistics(i, false).first;
                                   })),
            1e-12);
}

TEST(Attacks, OfAPoissonCohortAreDividedByThePlannedWeight) {
  const AttackConfig attack = Of("inner-product", .5, 1);
  const RoundLoop::Options options = {.cohort = {.size = 2, .sampling = "poisson"}};
  RoundLoop loop = Q4Under(attack, "fedavg", options);
  ASSERT_TRUE(loop.Rounds(1).ok());  // all four came: Σ w = 10, planned q·W = 5
  const FirstRound round(attack, "fedavg");
  const Numbers mean =
      round.Mean(true, [&](size_t, size_t i) { return -round.Statistics(i, true).first; });
  EXPECT_LT(Distance(loop.Model(), {2 * mean[0], 2 * mean[1]}), 1e-12);
}

TEST(Attacks, LeaveStatisticsHonest) {
  const LayoutPtr layout =
      *ParameterLayout::Make({{.name = "weight", .shape = {2}},
                              {.name = "running_mean", .shape = {1}, .group = Group::kBuffer}},
                             DType::kF64);
  const auto statistic = [&](const Description& rule) {
    RoundLoop loop(rule, Q4(), {.layout = layout});
    EXPECT_TRUE(loop.Rounds(1).ok());
    return loop.server().Model().As<double>()[layout->Find("running_mean")->offset];
  };
  const double honest = statistic(Builtin("fedavg"));
  EXPECT_GT(honest, 0);
  for (const char* kind : {"sign-flip", "scaling"}) {
    EXPECT_EQ(statistic(Under(Of(kind, .5, 3), "fedavg", 4)), honest) << kind;
  }
  // The honest clients' mean.
  const AttackConfig attack = Of("inner-product", .5, 3);
  const HostileClients hostile(attack, 4, kSeed);
  double weight = 0, sum = 0;
  for (size_t k = 0; k < 4; ++k) {
    if (hostile.Contains(ClientId(k))) continue;
    RoundLoop alone(Builtin("fedavg"), Q4(), {.layout = layout});
    ASSERT_TRUE(alone.Round({k}).ok());
    const double own = alone.server().Model().As<double>()[layout->Find("running_mean")->offset];
    weight += Q4()[k].examples;
    sum += Q4()[k].examples * own;
  }
  EXPECT_NEAR(statistic(Under(attack, "fedavg", 4)), sum / weight, 1e-12);
}

// ---- laws

using Case = std::tuple<std::string, std::string>;  // kind, rule

class EveryAttack : public ::testing::TestWithParam<Case> {
 protected:
  static std::map<std::string, ParameterValue> ParametersOf(const std::string& rule) {
    if (rule == "krum") return {{"f", int64_t{0}}};
    if (rule == "norm_bound") return {{"bound", 5.0}};  // beyond honest updates
    if (rule != "fltrust") return {};
    const HostileClients hostile(Of("sign-flip", .5), 4, kSeed);
    ClientId root;
    while (hostile.Contains(root)) ++root.value;
    return {{"root", static_cast<int64_t>(root.value)}};
  }
  static RoundLoop Loop(double fraction = .5) {
    const auto& [kind, rule] = GetParam();
    AttackConfig attack = Of(kind, fraction);
    if (kind == "free-rider") attack.noise = .01;
    const LayoutPtr net =
        *ParameterLayout::Make({{.name = "bn.weight", .shape = {1}},
                                {.name = "fc.weight", .shape = {1}},
                                {.name = "bn.running_mean", .shape = {1}, .group = Group::kBuffer}},
                               DType::kF32);
    return {Under(attack, rule, 4),
            Q4(),
            {.steps = 3,
             .parameters = ParametersOf(rule),
             .start = {1, -1},
             .layout = net,
             .cohort = {.size = 4}}};
  }
};

TEST_P(EveryAttack, GivesTheSameBitsInAnyOrderAfterALossAndAfterAResume) {
  RoundLoop forward = Loop(), backward = Loop();
  ASSERT_TRUE(forward.Round({0, 1, 2, 3}).ok());
  ASSERT_TRUE(backward.Round({3, 1, 0, 2}).ok());
  ASSERT_TRUE(forward.Round({0, 1, 2, 3}, {1}).ok());
  ASSERT_TRUE(backward.Round({1, 2, 0, 3}, {1}).ok());
  ASSERT_EQ(forward.ModelDigest(), backward.ModelDigest());
  RoundLoop resumed = Loop();
  ASSERT_TRUE(resumed.ResumeFrom(forward).ok());
  ASSERT_TRUE(forward.Rounds(2).ok());
  ASSERT_TRUE(resumed.Rounds(2).ok());
  EXPECT_EQ(resumed.ModelDigest(), forward.ModelDigest());
  EXPECT_LT(Distance(forward.Model(), {0, 0}), INFINITY);
}

TEST_P(EveryAttack, OfNobodyChangesNoBit) {
  const auto& [kind, rule] = GetParam();
  RoundLoop nobody = Loop(.1);  // ⌊.1 · 4⌋ = 0
  RoundLoop plain(Builtin(rule), Q4(),
                  {.steps = 3,
                   .parameters = ParametersOf(rule),
                   .start = {1, -1},
                   .layout = nobody.setup().layout,
                   .cohort = {.size = 4}});
  ASSERT_TRUE(nobody.Rounds(3).ok());
  ASSERT_TRUE(plain.Rounds(3).ok());
  EXPECT_EQ(nobody.ModelDigest(), plain.ModelDigest());
  EXPECT_EQ(nobody.metrics().at("attackers"), 0);
}

TEST_P(EveryAttack, ChangesTheModelAndSurvivesARoundOfHostileClientsAlone) {
  RoundLoop attacked = Loop(), nobody = Loop(.1);
  ASSERT_TRUE(attacked.Rounds(1).ok());
  ASSERT_TRUE(nobody.Rounds(1).ok());
  const auto& [kind, rule] = GetParam();
  // Rows are changed where they are loaded, so not here.
  EXPECT_EQ(attacked.ModelDigest() == nobody.ModelDigest(),
            kind == "label-flip" || kind == "backdoor");
  const HostileClients hostile(Of(kind, .5), 4, kSeed);
  std::vector<size_t> they;
  for (size_t k = 0; k < 4; ++k) {
    if (hostile.Contains(ClientId(k))) they.push_back(k);
  }
  ASSERT_TRUE(attacked.Round(they).ok());
  ASSERT_TRUE(attacked.Round({}).ok());
  ASSERT_TRUE(attacked.Rounds(1).ok());
  EXPECT_LT(Distance(attacked.Model(), {0, 0}), INFINITY);
}

std::vector<std::string> RulesWithACommonModel() {
  Registry registry;
  registry.AddBuiltin(BuiltinAlgorithms());
  std::vector<std::string> names;
  for (const Description* rule : registry.All()) {
    if (rule->has_slices || rule->has_statistics) continue;  // of a list of layers
    if (rule->has_common_model && !rule->pools_clients) names.push_back(rule->name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(On, EveryAttack,
                         ::testing::Combine(::testing::Values("label-flip", "sign-flip", "scaling",
                                                              "free-rider", "inner-product", "alie",
                                                              "min-max", "min-sum", "mimic",
                                                              "backdoor"),
                                            ::testing::ValuesIn(RulesWithACommonModel())),
                         [](const auto& test) {
                           std::string name =
                               absl::StrCat(std::get<0>(test.param), "_", std::get<1>(test.param));
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace macaw::algorithms
