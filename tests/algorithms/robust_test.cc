#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "algorithms/builtin.h"
#include "tests/algorithms/robust_util.h"

namespace macaw::algorithms {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

// The rule's result for these updates, with the model at the origin.
Numbers Combined(const std::string& name, const std::vector<Numbers>& updates,
                 const Parameters& parameters = {}, DType dtype = DType::kF64) {
  Registry registry;
  registry.AddBuiltin(BuiltinAlgorithms());
  const Description& rule = **registry.Find(name);
  Setup setup;
  setup.config = *registry.Complete({name, parameters});
  setup.layout = Plain(2, dtype);
  auto server = *rule.server(setup, FlatVector(setup.layout));
  aggregation::Aggregate aggregate;
  aggregate.channels.emplace_back().name = "delta";
  for (size_t i = 0; i < updates.size(); ++i) {
    FlatVector vector(setup.layout);
    SetNumbers(updates[i], vector.view());
    aggregate.channels[0].collected.emplace_back(ClientId(i), std::move(vector));
  }
  EXPECT_TRUE(server->Apply({.round = Round(1)}, std::move(aggregate)).ok());
  return NumbersOf(server->Model());
}

const std::vector<Numbers>& Five() {
  static const auto& five = *new std::vector<Numbers>{{1, 5}, {2, 4}, {3, 1e6}, {4, 2}, {-1e6, 3}};
  return five;
}

TEST(Median, TakesTheMiddleOfEachCoordinate) {
  EXPECT_EQ(Combined("median", Five()), (Numbers{2, 4}));
  // Even: the mean of the two in the middle.
  EXPECT_EQ(Combined("median", {{1, 9}, {2, 0}, {4, 1}, {1e6, 3}}), (Numbers{3, 2}));
  EXPECT_EQ(Combined("median", {{7, -7}}), (Numbers{7, -7}));
}

TEST(TrimmedMean, CutsTheSameNumberAtEachEnd) {
  // ⌊.2·5⌋ = 1 off each end.
  EXPECT_EQ(Combined("trimmed_mean", Five(), {{"beta", .2}}), (Numbers{2, 4}));
  // ⌊.19·5⌋ = 0: nothing is cut.
  EXPECT_NEAR(Combined("trimmed_mean", Five(), {{"beta", .19}})[0], (10 - 1e6) / 5, 1e-9);
  // Without a cut: the plain mean, as FedAvg of clients with equal weights.
  std::vector<TestPopulationClient> equal = Q4();
  for (TestPopulationClient& client : equal) client.examples = 2;
  RoundLoop trimmed(Builtin("trimmed_mean"), equal, {.parameters = {{"beta", 0.0}}});
  RoundLoop fedavg(Builtin("fedavg"), equal, {});
  ASSERT_TRUE(trimmed.Rounds(20).ok());
  ASSERT_TRUE(fedavg.Rounds(20).ok());
  EXPECT_LT(Distance(trimmed.Model(), fedavg.Model()), 1e-12);
}

TEST(TrimmedMean, CutsExactlyTheFloorOfBetaTimesN) {
  // .29 · 100 is 28.999999999999996 in double, and 29 by hand.
  std::vector<Numbers> updates;
  for (int i = 0; i < 100; ++i) updates.push_back({i < 71 ? 1.0 * i : 1e6, 0});
  EXPECT_NEAR(Combined("trimmed_mean", updates, {{"beta", .29}})[0], (29 + 70) / 2.0, 1e-12);
  EXPECT_GT(Combined("trimmed_mean", updates, {{"beta", .2899}})[0], 1e4);  // ⌊28.99⌋ = 28
}

TEST(Krum, SeesParametersOnly) {
  // If the running means counted, one of the updates near the last one would be chosen.
  const LayoutPtr layout =
      *ParameterLayout::Make({{.name = "weight", .shape = {1}},
                              {.name = "running_mean", .shape = {1}, .group = Group::kBuffer}},
                             DType::kF64);
  const uint64_t statistic = layout->Find("running_mean")->offset;
  const Description krum = Builtin("krum");
  Registry registry;
  ASSERT_TRUE(registry.Add(krum).ok());
  macaw::algorithms::Setup setup;
  setup.config = *registry.Complete({"krum", {}});
  setup.layout = layout;
  const auto server = *krum.server(setup, FlatVector(layout));
  aggregation::Aggregate aggregate;
  aggregate.channels.emplace_back().name = "delta";
  const std::vector<Numbers> updates = {{0, 900}, {1, -900}, {3, 0}, {7, 0}, {20, 0}};
  for (size_t i = 0; i < updates.size(); ++i) {
    FlatVector update(layout);
    update.As<double>()[layout->Find("weight")->offset] = updates[i][0];
    update.As<double>()[statistic] = updates[i][1];
    aggregate.channels[0].collected.emplace_back(ClientId(i), std::move(update));
  }
  ASSERT_TRUE(server->Apply({.round = Round(1)}, std::move(aggregate)).ok());
  EXPECT_EQ(NumbersOf(server->Model()), (Numbers{1}));
  // The chosen update is used completely, statistics included.
  EXPECT_EQ(server->Model().As<double>()[statistic], -900);
}

// A round with fewer clients than 2f+3 leaves the model as it is: a run of such rounds alone is
// refused.
TEST(Krum, IsRefusedWhereNoRoundCanCountEnoughClients) {
  Registry registry;
  ASSERT_TRUE(registry.Add(Builtin("krum")).ok());
  ASSERT_TRUE(registry.Add(Builtin("median")).ok());
  ASSERT_TRUE(registry.Add(Builtin("trimmed_mean")).ok());
  const auto setup_of = [&](const std::string& rule, CohortConfig cohort, uint64_t clients) {
    macaw::algorithms::Setup setup;
    setup.config = *registry.Complete({rule, {}});
    setup.layout = *ParameterLayout::Make({{.name = "w", .shape = {1}}}, DType::kF64);
    cohort.weight = WeightPolicy::kUniform;
    setup.cohort = cohort;
    setup.clients = clients;
    return setup;
  };
  const auto refusal = [&](const CohortConfig& cohort, uint64_t clients, uint64_t enough = 0,
                           const std::string& rule = "krum") {
    const auto setup = setup_of(rule, cohort, clients);
    const Description& description = **registry.Find(rule);
    const absl::Status made = MakeSchema(description, setup).status();
    return std::string((made.ok() ? CheckNeeded(description, setup, enough) : made).message());
  };
  const CohortConfig five{.size = 5};
  EXPECT_EQ(refusal(five, 5), "");
  EXPECT_THAT(refusal({.size = 4}, 100), HasSubstr("cohort.size = 4"));
  EXPECT_THAT(refusal(five, 4), AllOf(HasSubstr("2f+3"), HasSubstr("4 clients can be drawn")));
  CohortConfig dropping = five;
  dropping.straggler_policy = "drop";
  dropping.straggler_fraction = 1;
  EXPECT_THAT(refusal(dropping, 100), HasSubstr("straggler"));
  dropping.straggler_fraction = 0.2;
  EXPECT_EQ(refusal(dropping, 100), "");
  EXPECT_THAT(refusal(five, 100, /*enough=*/4), HasSubstr("round.enough = 4"));
  EXPECT_EQ(refusal(five, 100, /*enough=*/5), "");
  CohortConfig twice = five;
  twice.sampling = "proportional";
  EXPECT_THAT(refusal(twice, 100), HasSubstr("twice"));
  EXPECT_EQ(refusal({.size = 1}, 100, /*enough=*/1, "median"), "");

  // Rounds that are seldom large enough are said.
  const auto notes = [&](const std::string& rule, const CohortConfig& cohort) {
    return (*registry.Find(rule))->notes(setup_of(rule, cohort, 100));
  };
  EXPECT_THAT(notes("krum", dropping), Contains(AllOf(HasSubstr("4 clients"), HasSubstr("2f+3"))));
  EXPECT_THAT(notes("krum", five), IsEmpty());
  CohortConfig poisson{.size = 30, .sampling = "poisson"};
  EXPECT_THAT(notes("krum", poisson), IsEmpty());
  poisson.size = 6;
  EXPECT_THAT(notes("krum", poisson), Contains(HasSubstr("2f+3")));
  EXPECT_THAT(notes("trimmed_mean", five), Contains(HasSubstr("plain mean")));
  EXPECT_THAT(notes("trimmed_mean", {.size = 10}), IsEmpty());
}

TEST(Krum, OnIdenticalUpdatesReturnsOne) {
  const std::vector<Numbers> same(7, Numbers{.3, -.7});
  EXPECT_EQ(Combined("krum", same, {{"f", int64_t{2}}}), (Numbers{.3, -.7}));
  EXPECT_LT(Distance(Combined("krum", same, {{"f", int64_t{2}}, {"m", int64_t{3}}}), {.3, -.7}),
            1e-15);
}

TEST(Krum, NeverPicksAnOutlier) {
  const std::vector<Numbers> honest = {{1, 1}, {1.1, .9}, {.9, 1.2}, {1.3, 1}};
  for (size_t place = 0; place <= honest.size(); ++place) {
    std::vector<Numbers> updates = honest;
    updates.insert(updates.begin() + static_cast<int64_t>(place), Numbers{1e6, -1e6});
    EXPECT_LT(Distance(Combined("krum", updates, {{"f", int64_t{1}}}), {1, 1}), .5) << place;
    EXPECT_LT(Distance(Combined("krum", updates, {{"f", int64_t{1}}, {"m", int64_t{4}}}), {1, 1}),
              .5)
        << place;
  }
}

TEST(Krum, ScoresByHand) {
  // n = 5, f = 1: the two nearest count. On a line 0, 1, 3, 7, 20: scores 1+9, 1+4, 4+9, 16+36, …
  const std::vector<Numbers> line = {{0, 0}, {1, 0}, {3, 0}, {7, 0}, {20, 0}};
  EXPECT_EQ(Combined("krum", line), (Numbers{1, 0}));
  EXPECT_EQ(Combined("krum", line, {{"m", int64_t{2}}}), (Numbers{.5, 0}));
  EXPECT_LT(Distance(Combined("krum", line, {{"m", int64_t{3}}}), {4.0 / 3, 0}), 1e-15);
  EXPECT_LT(Distance(Combined("krum", line, {{"m", int64_t{4}}}), {11.0 / 4, 0}), 1e-15);
}

TEST(Krum, LeavesTheModelWhenTooFewRemain) {
  const std::vector<Numbers> four = {{1, 0}, {2, 0}, {3, 0}, {4, 0}};
  EXPECT_EQ(Combined("krum", four, {{"f", int64_t{1}}}), (Numbers{0, 0}));
}

TEST(Krum, AveragesNoMoreThanCanBeHonestWhenClientsDropOut) {
  // Planned for ten with two hostile ones; seven came, the two among them.
  const std::vector<Numbers> seven = {{1, 0}, {1, 0}, {1, 0}, {1, 0}, {1, 0}, {1e6, 0}, {-2e6, 0}};
  EXPECT_EQ(Combined("krum", seven, {{"f", int64_t{2}}, {"m", int64_t{8}}}), (Numbers{1, 0}));
}

TEST(GeometricMedian, IsWhereTheDiagonalsOfAQuadrilateralMeet) {
  const std::vector<Numbers> corners = {{0, 0}, {2, 0}, {3, 3}, {0, 2}};
  const Parameters many = {{"iterations", int64_t{200}}};
  EXPECT_LT(Distance(Combined("geometric_median", corners, many), {1, 1}), 1e-9);
  EXPECT_LT(Distance(Combined("geometric_median", corners), {1, 1}), 1e-2);
}

TEST(GeometricMedian, IsThePointOfAMajority) {
  const std::vector<Numbers> updates = {{1, 2}, {1e6, 0}, {1, 2}, {0, -1e6}, {1, 2}};
  EXPECT_LT(Distance(Combined("geometric_median", updates), {1, 2}), 1e-5);
  EXPECT_EQ(Combined("geometric_median", {{7, -7}}), (Numbers{7, -7}));
}

// Unlike the median, it turns with the axes.
TEST(GeometricMedian, DoesNotDependOnTheAxes) {
  const Parameters many = {{"iterations", int64_t{2000}}};
  std::vector<Numbers> updates = {{0, 0}, {4, 1}, {1, 3}, {2, 7}, {5, 5}}, turned;
  for (const Numbers& u : updates) turned.push_back({.6 * u[0] - .8 * u[1], .8 * u[0] + .6 * u[1]});
  const Numbers z = Combined("geometric_median", updates, many);
  EXPECT_LT(Distance(Combined("geometric_median", turned, many),
                     {.6 * z[0] - .8 * z[1], .8 * z[0] + .6 * z[1]}),
            1e-6);
}

TEST(CenteredClipping, ClipsEachDifferenceByHand) {
  // v = 0: (3, 0) counts as (1, 0). Then v = (.5, .25), and both differences are clipped or not.
  const std::vector<Numbers> updates = {{3, 0}, {0, .5}};
  EXPECT_LT(Distance(Combined("centered_clipping", updates, {{"radius", 1.0}}), {.5, .25}), 1e-15);
  const double far = std::hypot(2.5, .25);
  EXPECT_LT(Distance(Combined("centered_clipping", updates,
                              {{"radius", 1.0}, {"iterations", int64_t{2}}}),
                     {.5 + (2.5 / far - .5) / 2, .25 + (-.25 / far + .25) / 2}),
            1e-15);
}

TEST(CenteredClipping, IsTheMeanInALargeBall) {
  EXPECT_LT(Distance(Combined("centered_clipping", {{3, 0}, {0, .5}, {-6, 4}}, {{"radius", 1e3}}),
                     {-1, 1.5}),
            1e-15);
}

TEST(CenteredClipping, AnyOutlierMovesItByTheRadiusOverN) {
  const Parameters parameters = {{"radius", .5}};
  const std::vector<Numbers> honest = {{.1, 0}, {0, .1}, {-.1, 0}, {0, -.1}};
  for (const double size : {1.0, 1e3, 1e9}) {
    std::vector<Numbers> updates = honest;
    updates.push_back({size, 0});
    EXPECT_LT(Distance(Combined("centered_clipping", updates, parameters), {.1, 0}), 1e-12) << size;
  }
}

// Ordinary parameters, and statistics that are far from everybody else's.
TEST(Robust, StatisticsOfOneClientDoNotDecide) {
  const LayoutPtr layout =
      *ParameterLayout::Make({{.name = "weight", .shape = {1}},
                              {.name = "running_mean", .shape = {1}, .group = Group::kBuffer}},
                             DType::kF64);
  const uint64_t statistic = layout->Find("running_mean")->offset;
  for (const std::string name : {"median", "geometric_median", "centered_clipping", "norm_bound"}) {
    const Description rule = Builtin(name);
    Registry registry;
    ASSERT_TRUE(registry.Add(rule).ok());
    macaw::algorithms::Setup setup;
    setup.config = *registry.Complete({name, {}});
    setup.layout = layout;
    const auto server = *rule.server(setup, FlatVector(layout));
    aggregation::Aggregate aggregate;
    aggregate.channels.emplace_back().name = "delta";
    for (size_t i = 0; i < 5; ++i) {
      FlatVector update(layout);
      update.As<double>()[layout->Find("weight")->offset] = .25;
      update.As<double>()[statistic] = i == 0 ? 1e9 : static_cast<double>(i);
      aggregate.channels[0].collected.emplace_back(ClientId(i), std::move(update));
    }
    ASSERT_TRUE(server->Apply({.round = Round(1)}, std::move(aggregate)).ok());
    EXPECT_DOUBLE_EQ(NumbersOf(server->Model())[0], .25) << name;
    EXPECT_EQ(server->Model().As<double>()[statistic], 3) << name;
  }
}

TEST(Robust, DoNotListenToWeights) {
  std::vector<TestPopulationClient> boastful = Q4();
  boastful.push_back({Q4()[0].objective, 1000000});
  std::vector<TestPopulationClient> modest = Q4();
  modest.push_back({Q4()[0].objective, 1});
  for (const std::string name : {"median", "trimmed_mean", "krum", "geometric_median",
                                 "centered_clipping", "norm_bound", "fltrust"}) {
    RoundLoop loud(Builtin(name), boastful, {});
    RoundLoop quiet(Builtin(name), modest, {});
    ASSERT_TRUE(loud.Rounds(3).ok());
    ASSERT_TRUE(quiet.Rounds(3).ok());
    EXPECT_EQ(loud.ModelDigest(), quiet.ModelDigest()) << name;
  }
}

TEST(Robust, WithstandOneHostileClientOfFive) {
  using A = std::array<std::array<double, 2>, 2>;
  std::vector<TestPopulationClient> population;
  for (int c = 0; c < 5; ++c) {
    const double b = c == 2 ? -1e5 : 1 + .01 * c;
    population.push_back(
        {std::make_shared<Quadratic>(A{{{1, 0}, {0, 1}}}, std::array<double, 2>{b, b}), 1});
  }
  for (const std::string name : {"median", "trimmed_mean", "krum", "geometric_median"}) {
    const Parameters parameters = name == "trimmed_mean" ? Parameters{{"beta", .2}} : Parameters{};
    RoundLoop loop(Builtin(name), population, {.parameters = parameters});
    ASSERT_TRUE(loop.Rounds(100).ok());
    EXPECT_LT(Distance(loop.Model(), {1.02, 1.02}), .021) << name;
  }
  // Centered clipping is moved, but by no more than the radius allows.
  RoundLoop clipped(Builtin("centered_clipping"), population, {.parameters = {{"radius", .02}}});
  ASSERT_TRUE(clipped.Rounds(400).ok());
  EXPECT_LT(Distance(clipped.Model(), {1.02, 1.02}), .2);
  RoundLoop fedavg(Builtin("fedavg"), population, {});
  ASSERT_TRUE(fedavg.Rounds(100).ok());
  EXPECT_GT(Distance(fedavg.Model(), {1, 1}), 1e4);
}

TEST(Robust, WorkInSinglePrecision) {
  EXPECT_EQ(Combined("median", Five(), {}, DType::kF32), (Numbers{2, 4}));
  EXPECT_EQ(Combined("krum", {{0, 0}, {1, 0}, {3, 0}, {7, 0}, {20, 0}}, {}, DType::kF32),
            (Numbers{1, 0}));
}

}  // namespace
}  // namespace macaw::algorithms
