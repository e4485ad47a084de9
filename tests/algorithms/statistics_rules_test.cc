// Rules that solve for a model from sums over rows: ridge, kmeans.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "core/random.h"
#include "tests/algorithms/summing_run.h"

namespace macaw::algorithms {
namespace {

using testing::HasSubstr;

std::map<size_t, SummedRows> RegressionClients() {
  RandomStream random({.seed = 8});
  std::map<size_t, SummedRows> clients;
  for (size_t client = 0; client < 3; ++client) {
    for (size_t r = 0; r < 4 + client; ++r) {
      const std::vector<double> x = {random.Normal(), random.Normal() + 1, random.Normal()};
      clients[client].targets.push_back(2 * x[0] - x[1] + 0.5 + 0.3 * random.Normal());
      clients[client].x.push_back(x);
    }
  }
  return clients;
}

// At the minimum the gradient over all rows vanishes: Σ e·x + λw = 0, Σ e = 0.
void ExpectTheMinimum(const SummingRun& run, const std::map<size_t, SummedRows>& clients,
                      double lambda) {
  std::vector<double> gradient = {lambda * run.Weight(0, 0), lambda * run.Weight(0, 1),
                                  lambda * run.Weight(0, 2), 0};
  for (const auto& [client, rows] : clients) {
    for (size_t r = 0; r < rows.x.size(); ++r) {
      double error = run.Bias(0) - rows.targets[r];
      for (size_t i = 0; i < 3; ++i) error += run.Weight(0, i) * rows.x[r][i];
      for (size_t i = 0; i < 3; ++i) gradient[i] += error * rows.x[r][i];
      gradient[3] += error;
    }
  }
  for (const double g : gradient) EXPECT_NEAR(g, 0, 1e-12);
}

TEST(Ridge, OfAllClientsIsExactAfterOneRound) {
  for (const double lambda : {0.0, 0.7, 20.0}) {
    SummingRun run("ridge", {"linear 1"}, 3, 1, {{"lambda", lambda}}, TaskKind::kRegression);
    const auto clients = RegressionClients();
    ASSERT_TRUE(run.Round(clients).ok());
    ExpectTheMinimum(run, clients, lambda);
    EXPECT_EQ(run.metrics.at("rows"), 4 + 5 + 6);
  }
}

TEST(Ridge, CountsEachClientOnceAndAResumedServerGoesOn) {
  const auto clients = RegressionClients();
  SummingRun run("ridge", {"linear 1"}, 3, 1, {}, TaskKind::kRegression);
  ASSERT_TRUE(run.Round({{1, clients.at(1)}}).ok());
  EXPECT_EQ(run.metrics.at("rows"), 5);
  ASSERT_TRUE(run.Round({}).ok());
  const ServerState saved = run.server().Save();
  ASSERT_TRUE(run.server().Load(saved).ok());
  ASSERT_TRUE(run.Round({{0, clients.at(0)}, {1, clients.at(1)}}).ok());
  ASSERT_TRUE(run.Round({{2, clients.at(2)}}).ok());
  EXPECT_EQ(run.metrics.at("rows"), 15);
  ExpectTheMinimum(run, clients, 1);
}

TEST(Ridge, AFeatureThatSaysNothingHasNoWeight) {
  SummingRun run("ridge", {"linear 1"}, 2, 1, {{"lambda", 0.0}}, TaskKind::kRegression);
  const SummedRows rows{.x = {{1, 2}, {2, 4}, {3, 6}, {5, 10}}, .targets = {3, 5, 7, 11}};
  ASSERT_TRUE(run.Round({{0, rows}}).ok());
  EXPECT_NEAR(run.Weight(0, 0), 2, 1e-12);
  EXPECT_EQ(run.Weight(0, 1), 0);
  EXPECT_NEAR(run.Bias(0), 1, 1e-12);
}

// Sums that no rows have may have no finite solution. They are not kept, or no later round had one.
TEST(Ridge, SumsWithoutAFiniteSolutionAreLeftOut) {
  const auto clients = RegressionClients();
  SummingRun run("ridge", {"linear 1"}, 3, 1, {{"lambda", 0.0}}, TaskKind::kRegression);
  const FlatVector initial = FlatVector::CopyOf(run.server().Model(), run.spec().layout);
  ASSERT_TRUE(run.Apply({{"gram", {1e-300}}, {"moment", {0x1p80, 0, 0, 0}}, {"rows", {1}}}).ok());
  EXPECT_EQ(DigestOfValues(run.server().Model()), DigestOfValues(initial.view()));
  EXPECT_EQ(run.metrics.at("rows"), 0);
  ASSERT_TRUE(run.Apply({{"gram", {1}}, {"rows", {-1e9}}}).ok());
  EXPECT_EQ(run.metrics.at("rows"), 0);
  ASSERT_TRUE(run.Round(clients).ok());
  EXPECT_EQ(run.metrics.at("rows"), 15);
  ExpectTheMinimum(run, clients, 0);
}

// A Unix time beside a share: in whichever unit a feature is, predictions are the same.
TEST(Ridge, AFeatureOfAnotherUnitGivesTheSamePredictions) {
  const auto plain = RegressionClients();
  for (const double lambda : {0.0, 1e-18}) {
    SummingRun run("ridge", {"linear 1"}, 3, 1, {{"lambda", lambda}}, TaskKind::kRegression);
    ASSERT_TRUE(run.Round(plain).ok());
    for (size_t feature = 0; feature < 3; ++feature) {
      for (const double unit : {1e9, 1e-4}) {
        SCOPED_TRACE(testing::Message() << lambda << ", feature " << feature << " times " << unit);
        auto clients = plain;
        for (auto& [client, rows] : clients)
          for (std::vector<double>& x : rows.x) x[feature] *= unit;
        SummingRun other("ridge", {"linear 1"}, 3, 1, {{"lambda", lambda}}, TaskKind::kRegression);
        ASSERT_TRUE(other.Round(clients).ok());
        for (size_t i = 0; i < 3; ++i) {
          const double weight = other.Weight(0, i) * (i == feature ? unit : 1);
          EXPECT_NEAR(weight, run.Weight(0, i), 1e-8);
        }
        EXPECT_NEAR(other.Bias(0), run.Bias(0), 1e-8);
      }
    }
  }
}

TEST(Ridge, AUnixTimeBesideAShareTakesNothingFromIt) {
  RandomStream random({.seed = 3});
  SummedRows rows;
  for (int r = 0; r < 2000; ++r) {
    const double share = random.Uniform();
    rows.x.push_back({share, 1.7e9 + 1e6 * random.Uniform()});
    rows.targets.push_back(2 * share - 1);
  }
  SummingRun run("ridge", {"linear 1"}, 2, 1, {{"lambda", 1e-6}}, TaskKind::kRegression);
  ASSERT_TRUE(run.Round({{0, rows}}).ok());
  EXPECT_NEAR(run.Weight(0, 0), 2, 1e-4);
  EXPECT_NEAR(run.Weight(0, 1), 0, 1e-8);
}

// One hostile client in the first round. Clients keep their states: those of a round whose sums
// were thrown away come again, and no others.
TEST(Ridge, HonestClientsOfARoundThatIsThrownAwayComeAgain) {
  auto clients = RegressionClients();
  SummingRun run("ridge", {"linear 1"}, 3, 1, {}, TaskKind::kRegression);
  ASSERT_TRUE(run.Round({{2, clients.at(2)}}).ok());
  EXPECT_EQ(run.metrics.at("rows"), 6);
  EXPECT_EQ(run.metrics.at("thrown_away"), 0);
  run.lies[4] = -20;
  for (int bad = 0; bad < 3; ++bad) {
    ASSERT_TRUE(run.Round({{0, clients.at(0)}, {1, clients.at(1)}, {4, clients.at(2)}}).ok());
    EXPECT_EQ(run.metrics.at("rows"), 6);
    EXPECT_EQ(run.metrics.at("thrown_away"), 1);
  }
  const ServerState saved = run.server().Save();
  ASSERT_TRUE(run.Round({{1, clients.at(1)}, {2, clients.at(2)}}).ok());
  EXPECT_EQ(run.metrics.at("rows"), 6 + 5);
  EXPECT_EQ(run.metrics.at("thrown_away"), 0);
  ASSERT_TRUE(run.Round(clients).ok());
  ASSERT_TRUE(run.Round(clients).ok());
  EXPECT_EQ(run.metrics.at("rows"), 6 + 5 + 4);
  ExpectTheMinimum(run, clients, 1);
  EXPECT_EQ(saved.vectors.count("thrown_away"), 1);  // so a resumed server asks them again, too
}

TEST(Ridge, RemembersTheLastRoundsThatWereThrownAway) {
  const auto clients = RegressionClients();
  SummingRun run("ridge", {"linear 1"}, 3, 1, {}, TaskKind::kRegression);
  run.lies[4] = -20;
  ASSERT_TRUE(run.Round({{0, clients.at(0)}, {4, clients.at(2)}}).ok());
  for (int bad = 1; bad < 256; ++bad) ASSERT_TRUE(run.Apply({{"rows", {-1}}}).ok());
  ASSERT_TRUE(run.Round({{0, clients.at(0)}}).ok());
  EXPECT_EQ(run.metrics.at("rows"), 4);
}

// A round of less than no rows is thrown away, although all rows together are more.
TEST(Ridge, ARoundOfLessThanNoRowsCountsNothing) {
  const auto clients = RegressionClients();
  SummingRun run("ridge", {"linear 1"}, 3, 1, {}, TaskKind::kRegression);
  ASSERT_TRUE(run.Round(clients).ok());
  ASSERT_TRUE(run.Apply({{"gram", {1}}, {"rows", {-2}}}).ok());
  EXPECT_EQ(run.metrics.at("rows"), 15);
  EXPECT_EQ(run.metrics.at("thrown_away"), 1);
  ExpectTheMinimum(run, clients, 1);
}

TEST(Ridge, FitsAnOutputToEachClass) {
  SummingRun run("ridge", {"linear 3"}, 1, 3, {{"lambda", 0.0}}, TaskKind::kClassification);
  // With x² missing each output is a line through its class's share of the rows.
  const SummedRows rows{.x = {{-1}, {0}, {1}}, .classes = {0, 1, 2}};
  ASSERT_TRUE(run.Round({{0, rows}}).ok());
  const double slopes[] = {-0.5, 0, 0.5};
  for (size_t k = 0; k < 3; ++k) {
    EXPECT_NEAR(run.Weight(k, 0), slopes[k], 1e-14);
    EXPECT_NEAR(run.Bias(k), 1.0 / 3, 1e-14);
  }
  SummingRun signs("ridge", {"linear 1"}, 1, 1, {{"lambda", 0.0}}, TaskKind::kBinary);
  ASSERT_TRUE(signs.Round({{0, {.x = {{-2}, {2}}, .classes = {0, 1}}}}).ok());
  EXPECT_NEAR(signs.Weight(0, 0), 0.5, 1e-14);
  EXPECT_NEAR(signs.Bias(0), 0, 1e-14);
}

// Two clouds, of which each client has parts.
const std::map<size_t, SummedRows> kClouds = {
    {0, {.x = {{0, 0}, {10, 10}}, .classes = {0, 0}}},
    {1, {.x = {{0, 2}, {2, 0}, {12, 10}}, .classes = {0, 0, 0}}},
    {2, {.x = {{2, 2}, {10, 12}, {12, 12}}, .classes = {0, 0, 0}}}};

TEST(KMeans, MovesCentresToTheMeansOfTheirRows) {
  SummingRun run("kmeans", {"linear 3"}, 2, 3, {}, TaskKind::kClassification);
  ServerState state = run.server().Save();
  state.numbers.at("started") = 1;
  const auto set = [&](size_t c, double x, double y) {
    std::span<double> centre = state.vectors.at("model").As<double>().subspan(c * 2, 2);
    centre[0] = x;
    centre[1] = y;
  };
  set(0, -1, -1);
  set(1, 20, 20);
  set(2, 100, -100);  // nobody's
  ASSERT_TRUE(run.server().Load(state).ok());
  ASSERT_TRUE(run.Round(kClouds).ok());
  // ‖x − c‖²: 2 + 10 + 10 + 18 of four rows, 200 + 164 + 164 + 128 of the others.
  EXPECT_NEAR(run.metrics.at("inertia"), (40 + 656) / 8.0, 1e-12);
  EXPECT_EQ(run.metrics.at("empty"), 1);
  ASSERT_TRUE(run.Round(kClouds).ok());
  EXPECT_NEAR(run.metrics.at("inertia"), 2, 1e-12);
  const double expected[3][2] = {{1, 1}, {11, 11}, {100, -100}};
  for (size_t c = 0; c < 3; ++c) {
    for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(run.Weight(c, i), expected[c][i], 1e-12);
    // So that the largest output is the nearest centre's.
    const double square = expected[c][0] * expected[c][0] + expected[c][1] * expected[c][1];
    EXPECT_NEAR(run.Bias(c), -square / 2, 1e-9);
  }
  const FlatVector before = FlatVector::CopyOf(run.server().Model(), run.spec().layout);
  ASSERT_TRUE(run.Round({}).ok());
  EXPECT_EQ(DigestOfValues(run.server().Model()), DigestOfValues(before.view()));
}

// No client keeps anything, so a round that is thrown away is lost alone.
TEST(KMeans, GoesOnAfterARoundThatIsThrownAway) {
  SummingRun run("kmeans", {"linear 2"}, 2, 2, {}, TaskKind::kClassification);
  run.lies[3] = -20;
  auto clients = kClouds;
  clients[3] = kClouds.at(0);
  ASSERT_TRUE(run.Round(clients).ok());
  EXPECT_EQ(run.metrics.at("thrown_away"), 1);
  ASSERT_TRUE(run.Round({}).ok());
  EXPECT_EQ(run.metrics.at("thrown_away"), 0);
  ASSERT_TRUE(run.Round(kClouds).ok());
  EXPECT_EQ(run.metrics.at("thrown_away"), 0);
  EXPECT_GT(run.metrics.at("inertia"), 0);
}

// A client that says it had a part of a row throws no centre out of reach.
TEST(KMeans, ACentreOfLessThanARowStays) {
  SummingRun run("kmeans", {"linear 2"}, 1, 2, {{"start", "model"}}, TaskKind::kClassification);
  const double before = run.Weight(0, 0);
  for (const double count : {0.0, 1e-300, -3.0}) {
    ASSERT_TRUE(run.Apply({{"centres", {1, 16}}, {"counts", {count, 8}}}).ok());
    EXPECT_EQ(run.Weight(0, 0), before) << count;
    EXPECT_EQ(run.Weight(1, 0), 2) << count;
    EXPECT_EQ(run.metrics.at("empty"), 1);
  }
  for (const double count : {1e-300, -3.0}) {
    ASSERT_TRUE(run.Apply({{"centres", {1, 16}}, {"counts", {count, 0}}}).ok());
    EXPECT_EQ(run.Weight(0, 0), before) << count;
  }
}

TEST(KMeans, BeginsAroundTheMeanOfAllRows) {
  SummingRun run("kmeans", {"linear 400"}, 2, 400, {}, TaskKind::kClassification);
  ASSERT_TRUE(run.Round(kClouds).ok());
  double mean = 0, square = 0;
  for (size_t c = 0; c < 400; ++c) {
    mean += run.Weight(c, 0) / 400;
    square += run.Weight(c, 0) * run.Weight(c, 0) / 400;
  }
  const double deviation = std::sqrt(26.0);  // of 0, 0, 2, 2, 10, 10, 12, 12
  EXPECT_NEAR(mean, 6, 5 * deviation / 20);
  EXPECT_NEAR(square - mean * mean, 26, 5 * 26 * std::sqrt(2.0 / 400));
  ASSERT_TRUE(run.Round(kClouds).ok());
  EXPECT_GT(run.metrics.at("empty"), 390);
}

TEST(KMeans, MayBeginAtTheModel) {
  SummingRun run("kmeans", {"linear 2"}, 2, 2, {{"start", "model"}}, TaskKind::kClassification);
  const FlatVector first = models::InitialModel(run.spec(), 5);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(run.Weight(1, i), first.As<double>()[2 + i]);
  EXPECT_NEAR(run.Bias(0),
              -(run.Weight(0, 0) * run.Weight(0, 0) + run.Weight(0, 1) * run.Weight(0, 1)) / 2,
              1e-15);
}

TEST(StatisticsRules, PassTheRowsThatTheySay) {
  const auto expect = [](SummingRun run) {
    ASSERT_TRUE(run.Round(kClouds).ok());
    for (const auto& [client, rows] : kClouds) {
      EXPECT_GT(run.Passed(client), 0);
      EXPECT_NEAR(run.Passed(client), run.SaidToPass(client), 1e-12);
    }
  };
  expect(SummingRun("kmeans", {"linear 3"}, 2, 3, {}, TaskKind::kClassification));
  expect(SummingRun("ridge", {"linear 3"}, 2, 3, {}, TaskKind::kClassification));
  expect(SummingRun("daef", {"linear 1", "tanh", "linear 2", "tanh", "linear 2"}, 2, 2, {},
                    TaskKind::kReconstruction));
  // A new rule of statistics belongs here.
  std::vector<std::string> rules;
  for (const Description& rule : BuiltinAlgorithms())
    if (rule.has_statistics) rules.push_back(rule.name);
  EXPECT_THAT(rules, testing::UnorderedElementsAre("daef", "kmeans", "ridge"));
}

TEST(StatisticsRules, NeedOneLinearLayer) {
  for (const std::string rule : {"ridge", "kmeans"}) {
    EXPECT_EQ(RefusalOfLayers(rule, {"flatten", "linear 3"}), "");
    EXPECT_THAT(RefusalOfLayers(rule, {"flatten", "linear 4", "relu", "linear 3"}),
                HasSubstr("set model.layers = [\"linear K\"]"));
    EXPECT_THAT(RefusalOfLayers(rule, {"conv 3 2", "flatten"}), HasSubstr("one linear layer"));
  }
  EXPECT_EQ(RefusalOfLayers("ridge", {"flatten", "linear 3 nobias"}), "");
  EXPECT_THAT(RefusalOfLayers("kmeans", {"flatten", "linear 3 nobias"}), HasSubstr("\"nobias\""));
}

}  // namespace
}  // namespace macaw::algorithms
