#include <gtest/gtest.h>

#include <algorithm>

#include "algorithms/around/compressed.h"
#include "sdk/testing/round_loop.h"
#include "tests/algorithms/compressed_util.h"

namespace macaw::algorithms {
namespace {

// Where the clients' gradients nearly cancel, so that the server's rate is above 1.
const Numbers kNearOptimum = {.5, 2.6};

// y_i − x of a client after 7 steps.
Numbers UpdateOf(size_t client, const Numbers& x) {
  Numbers y = x;
  for (int k = 0; k < 7; ++k) {
    const Numbers g = Q4()[client].objective->Gradient(y);
    for (size_t i = 0; i < 2; ++i) y[i] -= .1 * g[i];
  }
  return {y[0] - x[0], y[1] - x[1]};
}

TEST(FedExP, OneRoundByHand) {
  for (const double epsilon : {0.0, 1e-3, 0.5}) {
    SCOPED_TRACE(epsilon);
    RoundLoop loop(Builtin("fedexp"), Q4(),
                   {.parameters = {{"epsilon", epsilon}}, .start = kNearOptimum});
    Numbers mean(2);
    double squares = 0;
    for (size_t c = 0; c < 4; ++c) {
      const Numbers delta = UpdateOf(c, kNearOptimum);
      const double share = static_cast<double>(c + 1) / 10;
      for (size_t i = 0; i < 2; ++i) mean[i] += share * delta[i];
      squares += share * (delta[0] * delta[0] + delta[1] * delta[1]);
    }
    const double of_mean = mean[0] * mean[0] + mean[1] * mean[1];
    const double rate = std::max(1.0, squares / (2 * (of_mean + epsilon)));
    ASSERT_GT(rate, 1.2);
    ASSERT_TRUE(loop.Rounds(1).ok());
    const Numbers x = {kNearOptimum[0] + rate * mean[0], kNearOptimum[1] + rate * mean[1]};
    EXPECT_LT(Distance(loop.Model(), x), 1e-13 * rate);
    EXPECT_NEAR(loop.metrics().at("server_rate"), rate, 1e-11 * rate);
    EXPECT_LT(Distance(loop.Result(), {(x[0] + kNearOptimum[0]) / 2, (x[1] + kNearOptimum[1]) / 2}),
              1e-13 * rate);
  }
}

TEST(FedExP, OfClientsThatAgreeIsFedAvg) {
  // Σ‖Δ_i‖²/(2M‖Δ̄‖²) is 1/2.
  const std::vector<TestPopulationClient> equal(4, Q4()[1]);
  RoundLoop fedexp(Builtin("fedexp"), equal, {.parameters = {{"evaluate", "x"}}});
  RoundLoop fedavg(Builtin("fedavg"), equal, {});
  for (int round = 0; round < 5; ++round) {
    ASSERT_TRUE(fedexp.Rounds(1).ok());
    ASSERT_TRUE(fedavg.Rounds(1).ok());
    EXPECT_EQ(fedexp.metrics().at("server_rate"), 1);
    EXPECT_EQ(fedexp.ModelDigest(), fedavg.ModelDigest());
    EXPECT_EQ(fedexp.Result(), fedexp.Model());
  }
}

// Under EF21 the server has a mean in a round that counts nobody, and no norms.
TEST(FedExP, HasARateOfOneWhereNobodyCounts) {
  RoundLoop loop(Compressed(Builtin("fedexp"), Update({"topk 0.5"}, "ef21")), Q4(),
                 {.start = kNearOptimum, .cohort = CohortOf(2)});
  ASSERT_TRUE(loop.Round({0, 1}).ok());
  const Numbers before = loop.Model();
  ASSERT_TRUE(loop.Round({}).ok());
  EXPECT_EQ(loop.metrics().at("server_rate"), 1);
  EXPECT_GT(Distance(loop.Model(), before), 1e-6);
}

// ½(w_i − 1)² of one coordinate: a client projects on a hyperplane, and all meet at one point.
class OneCoordinate final : public Objective {
 public:
  explicit OneCoordinate(size_t coordinate) : coordinate_(coordinate) {}
  double Loss(const Numbers& w) const override {
    return .5 * (w[coordinate_] - 1) * (w[coordinate_] - 1);
  }
  Numbers Gradient(const Numbers& w) const override {
    Numbers g(w.size());
    g[coordinate_] = w[coordinate_] - 1;
    return g;
  }

 private:
  const size_t coordinate_;
};

// Of M projections on orthogonal hyperplanes η_g is M/2, so the distance to the common minimum
// halves, whatever M is; FedAvg takes 1 − 1/M of it (section 3 of the paper).
TEST(FedExP, HalvesTheDistanceOfOrthogonalProjections) {
  constexpr size_t kClients = 8;
  std::vector<TestPopulationClient> clients;
  for (size_t i = 0; i < kClients; ++i) clients.push_back({std::make_shared<OneCoordinate>(i), 5});
  Numbers start(kClients);
  for (size_t i = 0; i < kClients; ++i) start[i] = 2 + static_cast<double>(i);
  RoundLoop loop(Builtin("fedexp"), clients,
                 {.steps = 1, .parameters = {{"epsilon", 0.0}}, .start = start, .lr = 1});
  for (int round = 1; round <= 5; ++round) {
    ASSERT_TRUE(loop.Rounds(1).ok());
    EXPECT_NEAR(loop.metrics().at("server_rate"), kClients / 2.0, 1e-12);
    Numbers expected(kClients);
    for (size_t i = 0; i < kClients; ++i) {
      start[i] = 1 + (start[i] - 1) / 2;
      expected[i] = start[i];
    }
    EXPECT_LT(Distance(loop.Model(), expected), 1e-13);
  }
}

TEST(FedExP, ReportsTheMeanOfTheLastTwoIterates) {
  RoundLoop loop(Builtin("fedexp"), Q4(), {.start = {4, -4}});
  Numbers before = loop.Model();
  EXPECT_EQ(loop.Result(), before);
  for (int round = 0; round < 4; ++round) {
    ASSERT_TRUE(loop.Rounds(1).ok());
    const Numbers x = loop.Model();
    EXPECT_LT(Distance(loop.Result(), {(x[0] + before[0]) / 2, (x[1] + before[1]) / 2}), 1e-15);
    EXPECT_NE(loop.Result(), x);
    ASSERT_TRUE(loop.Round({}).ok());  // no client: neither moves
    EXPECT_LT(Distance(loop.Result(), {(x[0] + before[0]) / 2, (x[1] + before[1]) / 2}), 1e-15);
    before = x;
  }
}

TEST(FedExP, ExtrapolatesNoStatistics) {
  const LayoutPtr layout =
      *ParameterLayout::Make({{.name = "weight", .shape = {2}},
                              {.name = "running_mean", .shape = {1}, .group = Group::kBuffer}},
                             DType::kF64);
  RoundLoop loop(
      Builtin("fedexp"), Q4(),
      {.steps = 1, .parameters = {{"epsilon", 0.0}}, .start = kNearOptimum, .layout = layout});
  ASSERT_TRUE(loop.Rounds(1).ok());
  EXPECT_GT(loop.metrics().at("server_rate"), 1.2);
  // Statistics move a tenth of the way to 1, 2, 3 and 4, which weigh as much.
  EXPECT_NEAR(loop.server().Model().As<double>()[layout->Find("running_mean")->offset], .3, 1e-15);
}

}  // namespace
}  // namespace macaw::algorithms
