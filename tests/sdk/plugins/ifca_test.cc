#include <gtest/gtest.h>

#include "sdk/testing/round_loop.h"

namespace macaw::algorithms {
namespace {

// Clients 0 and 2 have their optimum at (5, 3), clients 1 and 3 at (−5, 1).
std::vector<TestPopulationClient> TwoPopulations() {
  using Matrix = std::array<std::array<double, 2>, 2>;
  std::vector<TestPopulationClient> clients;
  for (uint32_t c = 0; c < 4; ++c) {
    const auto b = c % 2 == 0 ? std::array<double, 2>{5, 3} : std::array<double, 2>{-5, 1};
    const Matrix a = {{{1.0 + c, 0.1}, {0.1, 2.0}}};
    clients.push_back({std::make_shared<Quadratic>(a, b), c + 1});
  }
  return clients;
}

RoundLoop Ifca(std::vector<TestPopulationClient> population, int64_t clusters) {
  const auto rule = OfPlugin(MACAW_PLUGIN_FILE, "ifca");
  EXPECT_TRUE(rule.ok()) << rule.status();
  return {*rule,
          std::move(population),
          {.steps = 5, .parameters = {{"clusters", clusters}, {"spread", 1.0}}}};
}

TEST(Ifca, GivesEachPopulationItsOwnModelWhereFedAvgEndsBetweenThem) {
  RoundLoop ifca = Ifca(TwoPopulations(), 2);
  RoundLoop fedavg(Builtin("fedavg"), TwoPopulations(), {.steps = 5});
  ASSERT_TRUE(ifca.Rounds(100).ok());
  ASSERT_TRUE(fedavg.Rounds(100).ok());
  const Numbers right = {5, 3}, left = {-5, 1}, model = ifca.Model(), other = ifca.Saved("model1");
  EXPECT_LT(std::min(Distance(model, right), Distance(model, left)), 1e-9);
  EXPECT_LT(std::min(Distance(other, right), Distance(other, left)), 1e-9);
  EXPECT_GT(Distance(model, other), 9);
  EXPECT_EQ(ifca.metrics().at("clients0"), 2);
  EXPECT_EQ(ifca.metrics().at("clients1"), 2);
  EXPECT_LT(ifca.metrics().at("best_loss"), 1e-9);
  EXPECT_GT(Distance(fedavg.Model(), right), 1);
  EXPECT_GT(Distance(fedavg.Model(), left), 1);
}

TEST(Ifca, WithOneModelIsFedAvg) {
  RoundLoop one = Ifca(Q4(), 1), fedavg(Builtin("fedavg"), Q4(), {.steps = 5});
  ASSERT_TRUE(one.Rounds(10).ok());
  ASSERT_TRUE(fedavg.Rounds(10).ok());
  EXPECT_LT(Distance(one.Model(), fedavg.Model()), 1e-13);
}

TEST(Ifca, AModelThatNobodyTakesStays) {
  RoundLoop loop = Ifca(TwoPopulations(), 2);
  ASSERT_TRUE(loop.Rounds(20).ok());
  const Numbers model = loop.Model(), other = loop.Saved("model1");
  ASSERT_TRUE(loop.Round({0}).ok());  // of one population alone
  EXPECT_TRUE(Distance(loop.Model(), model) == 0 || Distance(loop.Saved("model1"), other) == 0);
  EXPECT_EQ(loop.metrics().at("clients0") + loop.metrics().at("clients1"), 1);
}

}  // namespace
}  // namespace macaw::algorithms
