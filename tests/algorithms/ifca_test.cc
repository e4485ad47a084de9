#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "algorithms/api/vector_math.h"
#include "sdk/testing/round_loop.h"

namespace macaw::algorithms {
namespace {

using testing::HasSubstr;

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

RoundLoop Ifca(std::vector<TestPopulationClient> population, int64_t clusters, double spread = 1,
               double server_lr = 1, DType dtype = DType::kF64) {
  return {Builtin("ifca"),
          std::move(population),
          {.steps = 5,
           .parameters = {{"clusters", clusters},
                          {"start", std::string("noise")},
                          {"spread", spread},
                          {"server_lr", server_lr}},
           .dtype = dtype}};
}

// The other model, which is at `first` plus the rest.
double NearestOf(const Numbers& model, const Numbers& a, const Numbers& b) {
  return std::min(Distance(model, a), Distance(model, b));
}

TEST(Ifca, GivesEachPopulationItsOwnModelWhereFedAvgEndsBetweenThem) {
  RoundLoop ifca = Ifca(TwoPopulations(), 2);
  RoundLoop fedavg(Builtin("fedavg"), TwoPopulations(), {.steps = 5});
  ASSERT_TRUE(ifca.Rounds(100).ok());
  ASSERT_TRUE(fedavg.Rounds(100).ok());
  const Numbers right = {5, 3}, left = {-5, 1}, model = ifca.Model(), other = ifca.Saved("model1");
  EXPECT_LT(NearestOf(model, right, left), 1e-9);
  EXPECT_LT(NearestOf(other, right, left), 1e-9);
  EXPECT_GT(Distance(model, other), 9);
  EXPECT_EQ(ifca.metrics().at("clients0"), 2);
  EXPECT_EQ(ifca.metrics().at("clients1"), 2);
  EXPECT_LT(ifca.metrics().at("best_loss"), 1e-9);
  EXPECT_GT(Distance(fedavg.Model(), right), 1);
  EXPECT_GT(Distance(fedavg.Model(), left), 1);
}

TEST(Ifca, WithOneModelIsFedAvgToTheBit) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    RoundLoop one = Ifca(Q4(), 1, 1, 0.7, dtype);
    RoundLoop fedavg(Builtin("fedavg"), Q4(),
                     {.steps = 5, .parameters = {{"server_lr", 0.7}}, .dtype = dtype});
    for (int round = 0; round < 10; ++round) {
      ASSERT_TRUE(one.Round({0, 2, 3}).ok());
      ASSERT_TRUE(fedavg.Round({0, 2, 3}).ok());
      ASSERT_EQ(one.ModelDigest(), fedavg.ModelDigest());
    }
  }
}

TEST(Ifca, AModelThatNobodyTakesStays) {
  RoundLoop loop = Ifca(TwoPopulations(), 2);
  ASSERT_TRUE(loop.Rounds(20).ok());
  const Numbers model = loop.Model(), other = loop.Saved("model1");
  ASSERT_TRUE(loop.Round({0}).ok());  // of one population alone
  EXPECT_TRUE(Distance(loop.Model(), model) == 0 || Distance(loop.Saved("model1"), other) == 0);
  EXPECT_EQ(loop.metrics().at("clients0") + loop.metrics().at("clients1"), 1);
}

// A round by hand, f = ½(w − b)ᵀA(w − b) with steps y ← y − 0.1·A(y − b): each model is the mean of
// its own clients' ends, weighted by their examples.
TEST(Ifca, AModelIsTheMeanOfItsOwnClients) {
  const std::vector<TestPopulationClient> clients = TwoPopulations();
  RoundLoop loop = Ifca(clients, 2);
  ASSERT_TRUE(loop.Rounds(3).ok());
  const std::array<Numbers, 2> before = {loop.Model(), loop.Saved("model1")};
  ASSERT_TRUE(loop.Rounds(1).ok());
  std::array<Numbers, 2> sums = {Numbers{0, 0}, Numbers{0, 0}};
  std::array<double, 2> weights = {};
  for (uint32_t c = 0; c < 4; ++c) {
    const std::array<double, 2> b =
        c % 2 == 0 ? std::array<double, 2>{5, 3} : std::array<double, 2>{-5, 1};
    const double a = 1.0 + c;
    const auto gradient = [&](const Numbers& w) {
      const double x = w[0] - b[0], y = w[1] - b[1];
      return std::array<double, 2>{a * x + 0.1 * y, 0.1 * x + 2 * y};
    };
    const auto loss = [&](const Numbers& w) {
      const auto g = gradient(w);
      return (g[0] * (w[0] - b[0]) + g[1] * (w[1] - b[1])) / 2;
    };
    const size_t choice = loss(before[1]) < loss(before[0]) ? 1 : 0;
    Numbers y = before[choice];
    for (int step = 0; step < 5; ++step) {
      const auto g = gradient(y);
      y = {y[0] - 0.1 * g[0], y[1] - 0.1 * g[1]};
    }
    weights[choice] += c + 1;
    for (size_t i = 0; i < 2; ++i) sums[choice][i] += (c + 1) * y[i];
  }
  const std::array<Numbers, 2> after = {loop.Model(), loop.Saved("model1")};
  for (size_t j = 0; j < 2; ++j) {
    ASSERT_GT(weights[j], 0);
    for (double& value : sums[j]) value /= weights[j];
    EXPECT_LT(Distance(after[j], sums[j]), 1e-9) << j;
  }
}

TEST(Ifca, ServersModelsAreThoseOfTheSchema) {
  RoundLoop loop = Ifca(TwoPopulations(), 3);
  EXPECT_THAT(loop.schema().models, testing::ElementsAre("model1", "model2"));
  const std::vector<ConstVectorView> more = loop.server().MoreModels();
  ASSERT_EQ(more.size(), 2u);
  EXPECT_EQ(Distance(NumbersOf(more[1]), loop.Saved("model2")), 0);
}

// Each tensor has the same numbers in another order.
TEST(Ifca, BeginsWithPermutedTensors) {
  Numbers start(64);
  for (size_t i = 0; i < start.size(); ++i) start[i] = static_cast<double>(i);
  const LayoutPtr layout = *ParameterLayout::Make(
      {{.name = "a.weight", .shape = {32}}, {.name = "b.weight", .shape = {32}}}, DType::kF64);
  algorithms::Setup setup;
  setup.layout = layout;
  setup.seed = 3;
  for (const ParameterSpec& spec : Builtin("ifca").parameters)
    setup.config.parameters[spec.name] = spec.default_value;
  FlatVector model(layout);
  std::ranges::copy(start, model.As<double>().begin());
  const auto server = Builtin("ifca").server(setup, model.Clone());
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(NumbersOf((*server)->Model()), start);
  Numbers other = NumbersOf((*server)->MoreModels()[0]);
  EXPECT_NE(other, start);
  std::sort(other.begin(), other.begin() + 32);
  std::sort(other.begin() + 32, other.end());
  EXPECT_EQ(other, start);
  // Of one number in each tensor there is no other order.
  Fill(1, model.view());
  EXPECT_THAT(std::string(Builtin("ifca").server(setup, std::move(model)).status().message()),
              HasSubstr("start = \"noise\""));
}

// Honest clients' mean is no larger than their updates may be. One that says it had next to nothing
// of a model, or less, divides by next to nothing.
TEST(Ifca, AClientThatLiesAboutItsShareMovesNoModelBeyondTheBound) {
  const LayoutPtr layout =
      *ParameterLayout::Make({{.name = "a.weight", .shape = {4}}}, DType::kF64);
  algorithms::Setup setup;
  setup.layout = layout;
  setup.contribution_bound = 2;
  for (const ParameterSpec& spec : Builtin("ifca").parameters)
    setup.config.parameters[spec.name] = spec.default_value;
  FlatVector model(layout);
  for (size_t i = 0; i < 4; ++i) model.As<double>()[i] = static_cast<double>(i);
  const Schema schema = *Builtin("ifca").schema(setup);
  for (const double share : {0.5, 1e-300, 1e-12, -1e-12, -0.7}) {
    const auto server = *Builtin("ifca").server(setup, model.Clone());
    const Numbers before = NumbersOf(server->Model());
    aggregation::Aggregate aggregate{.clients = 2, .channels = {}};
    for (const aggregation::ChannelSpec& spec : schema.up) {
      aggregation::AggregatedChannel& channel = aggregate.channels.emplace_back();
      channel.name = spec.name;
      channel.weight = 2;
      channel.value = FlatVector(spec.layout);
      if (spec.name == "share") channel.value.As<double>()[0] = share;
      if (spec.name == "delta") Fill(0.25, channel.value.view());
    }
    std::map<std::string, double> metrics;
    const ServerContext context{.round = Round(1), .metrics = &metrics, .schema = &schema};
    ASSERT_TRUE(server->Apply(context, std::move(aggregate)).ok());
    const double moved = share > 1e-20 ? std::min(0.25 / share, setup.contribution_bound) : 0;
    for (size_t i = 0; i < 4; ++i)
      EXPECT_EQ(NumbersOf(server->Model())[i], before[i] + moved) << share;
  }
}

}  // namespace
}  // namespace macaw::algorithms
