#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "algorithms/local_group.h"
#include "core/glob.h"
#include "sdk/testing/round_loop.h"
#include "training/api/straggler.h"

// Ditto, FedBN, FedRep, and the groups of tensors that the last two keep on the client.

namespace macaw::algorithms {
namespace {

using Options = RoundLoop::Options;
using ::testing::ElementsAre;

std::vector<std::string> NamesOf(const ParameterGroup& group) {
  std::vector<std::string> names;
  for (const LayoutEntry& entry : group.layout()->entries()) names.push_back(entry.name);
  return names;
}

// A two-parameter network: one shared number, one of a norm layer with its statistic.
LayoutPtr NormNet(DType dtype = DType::kF64) {
  return *ParameterLayout::Make(
      {{.name = "conv.weight", .shape = {1}},
       {.name = "bn.weight", .shape = {1}},
       {.name = "bn.running_mean", .shape = {1}, .group = Group::kBuffer}},
      dtype);
}

LayoutPtr HeadNet() {
  return *ParameterLayout::Make(
      {{.name = "0.weight", .shape = {1}}, {.name = "1.weight", .shape = {1}}}, DType::kF64);
}

// Four clients whose two coordinates are independent.
std::vector<TestPopulationClient> Separable() {
  using A = std::array<std::array<double, 2>, 2>;
  std::vector<TestPopulationClient> clients;
  for (int c = 1; c <= 4; ++c) {
    clients.push_back({std::make_shared<Quadratic>(A{{{1, 0}, {0, .5}}},
                                                   std::array<double, 2>{1.0 * c, -2.0 * c}),
                       static_cast<uint32_t>(c)});
  }
  return clients;
}

TEST(Ditto, LeavesTheGlobalModelToFedAvg) {
  RoundLoop ditto(Builtin("ditto"), Q4(), {});
  RoundLoop fedavg(Builtin("fedavg"), Q4(), {});
  ASSERT_TRUE(ditto.Rounds(10).ok());
  ASSERT_TRUE(fedavg.Rounds(10).ok());
  EXPECT_EQ(ditto.ModelDigest(), fedavg.ModelDigest());
}

TEST(Ditto, KeepsAPersonalModelBetweenItsOwnMinimumAndTheGlobalOne) {
  const double lambda = 0.5;
  RoundLoop loop(Builtin("ditto"), Q4(), {.parameters = {{"lambda", lambda}}, .start = {5, 5}});
  EXPECT_EQ(loop.Personal(2), (Numbers{5, 5}));  // a first turn begins at the global model
  ASSERT_TRUE(loop.Rounds(1000).ok());
  for (size_t client = 0; client < 4; ++client) {
    const Numbers v = loop.Personal(client);
    const Numbers g = Q4()[client].objective->Gradient(v);
    for (size_t i = 0; i < 2; ++i)  // ∇f(v) + λ(v − x) = 0
      EXPECT_NEAR(g[i] + lambda * (v[i] - loop.Model()[i]), 0, 1e-12);
  }
}

TEST(Local, HasDittosPersonalModelsThatNothingPulls) {
  RoundLoop local(Builtin("local"), Q4(), {.start = {3, -2}});
  RoundLoop ditto(Builtin("ditto"), Q4(), {.parameters = {{"lambda", 0.0}}, .start = {3, -2}});
  EXPECT_EQ(local.Personal(2), (Numbers{3, -2}));
  for (int round = 0; round < 30; ++round) {
    // Half of the clients, so that some have trained more often than others.
    const std::vector<size_t> cohort =
        round % 2 == 0 ? std::vector<size_t>{0, 3} : std::vector<size_t>{2, 3};
    ASSERT_TRUE(local.Round(cohort).ok());
    ASSERT_TRUE(ditto.Round(cohort).ok());
    for (const size_t client : {0, 1, 2, 3}) {
      // Ditto's models start from x as it is at a client's first turn, which moves.
      if (client != 0 && client != 3) continue;
      ASSERT_EQ(local.Personal(client), ditto.Personal(client));
    }
  }
  EXPECT_EQ(local.Personal(1), (Numbers{3, -2})) << "it never trained";
  EXPECT_EQ(local.Model(), (Numbers{3, -2}));
  EXPECT_LT(Distance(Q4()[2].objective->Gradient(local.Personal(2)), {0, 0}), 1e-2);
}

TEST(Ditto, ReportsTheLossesOfThePersonalModelApart) {
  const Description ditto = Builtin("ditto");
  RoundLoop loop(ditto, Q4(), {});
  const auto client = *ditto.client(loop.setup());
  const FlatVector x(loop.setup().layout);
  const ConstVectorView model = x.view();
  ClientContext context;
  context.broadcast = {&model, 1};
  context.state = {&model, 1};
  context.schema = &loop.schema();
  Workspace workspace;
  const auto plan = *client->Prepare(context, workspace);
  ASSERT_EQ(plan.stages.size(), 2u);
  EXPECT_EQ(plan.stages[0].losses, training::Losses::kTrain);
  EXPECT_EQ(plan.stages[1].losses, training::Losses::kPersonal);
}

TEST(Personal, RulesSayThatTheirClientsKeepModelsOfTheirOwn) {
  for (const std::string name : {"ditto", "fedbn", "fedrep", "fedper"})
    EXPECT_TRUE(Builtin(name).has_personal_models) << name;
  for (const std::string name : {"fedavg", "scaffold", "feddyn"})
    EXPECT_FALSE(Builtin(name).has_personal_models) << name;
}

TEST(ParameterGroup, MatchesGlobs) {
  EXPECT_TRUE(MatchesGlob("*.weight", "layer1.0.weight"));
  EXPECT_TRUE(MatchesGlob("layer?.*.bias", "layer2.bn1.bias"));
  EXPECT_TRUE(MatchesGlob("*bn*", "layer2.bn1.bias"));
  EXPECT_FALSE(MatchesGlob("layer?.bias", "layer12.bias"));
  EXPECT_FALSE(MatchesGlob("fc", "fc.weight"));
  EXPECT_TRUE(MatchesGlob("*", "x"));
  EXPECT_FALSE(MatchesGlob("", "x"));
  // In their order; "!" takes out.
  const std::vector<std::string> globs = {"*", "!*.lora_?.weight", "!4.*", "4.bias"};
  EXPECT_TRUE(MatchesAny(globs, "0.weight"));
  EXPECT_FALSE(MatchesAny(globs, "0.lora_A.weight"));
  EXPECT_FALSE(MatchesAny(globs, "4.weight"));
  EXPECT_TRUE(MatchesAny(globs, "4.bias"));
  EXPECT_FALSE(MatchesAny({}, "4.bias"));
}

TEST(ParameterGroup, ChoosesTensorsByNameAndKind) {
  const LayoutPtr net = *ParameterLayout::Make(
      {{.name = "conv1.weight", .shape = {3}},
       {.name = "layer.bn1.weight", .shape = {2}},
       {.name = "layer.bn1.bias", .shape = {2}},
       {.name = "layer.bn1.running_mean", .shape = {2}, .group = Group::kBuffer},
       {.name = "layer.bn1.running_var", .shape = {2}, .group = Group::kBuffer},
       {.name = "fc.weight", .shape = {2, 2}},
       {.name = "fc.bias", .shape = {2}}},
      DType::kF32);
  EXPECT_THAT(NamesOf(ParameterGroup::OfNormLayers(net)),
              ElementsAre("layer.bn1.weight", "layer.bn1.bias", "layer.bn1.running_mean",
                          "layer.bn1.running_var"));
  EXPECT_THAT(NamesOf(ParameterGroup::OfLastLayer(net)), ElementsAre("fc.weight", "fc.bias"));
  EXPECT_THAT(NamesOf(ParameterGroup::Matching(net, "conv1.* *.bias")),
              ElementsAre("conv1.weight", "layer.bn1.bias", "fc.bias"));
  // An adapter is of the layer that it adapts.
  const LayoutPtr adapted = *ParameterLayout::Make({{.name = "0.lora_A.weight", .shape = {3}},
                                                    {.name = "2.weight", .shape = {3}},
                                                    {.name = "2.lora_A.weight", .shape = {3}},
                                                    {.name = "2.lora_B.weight", .shape = {3}}},
                                                   DType::kF64);
  EXPECT_THAT(NamesOf(ParameterGroup::OfLastLayer(adapted)),
              ElementsAre("2.weight", "2.lora_A.weight", "2.lora_B.weight"));
  EXPECT_TRUE(ParameterGroup::Matching(net, "nothing").empty());
  EXPECT_TRUE(ParameterGroup::Matching(net, "*").everything());
}

TEST(FedBn, KeepsNormLayersAtHomeAndSharesTheRest) {
  RoundLoop loop(Builtin("fedbn"), Separable(), {.start = {.5, .25}, .layout = NormNet()});
  const uint64_t statistic = NormNet()->Find("bn.running_mean")->offset;
  ASSERT_TRUE(loop.Rounds(1000).ok());
  EXPECT_EQ(loop.Model()[1], .25);  // never sent to the server
  EXPECT_EQ(loop.server().Model().As<double>()[statistic], 0);
  EXPECT_NEAR(loop.Model()[0], .1 * 1 + .2 * 2 + .3 * 3 + .4 * 4, 1e-12);  // of equal curvature
  for (size_t client = 0; client < 4; ++client) {
    EXPECT_NEAR(loop.Personal(client)[0], loop.Model()[0], 1e-15);
    EXPECT_NEAR(loop.Personal(client)[1], -2.0 * static_cast<double>(client + 1), 1e-12);
  }
}

TEST(FedBn, ANewClientIsEvaluatedOnTheBroadcast) {
  RoundLoop loop(Builtin("fedbn"), Separable(), {.start = {.5, .25}, .layout = NormNet()});
  ASSERT_TRUE(loop.Round({0, 1}).ok());
  EXPECT_EQ(loop.Personal(3), loop.Model());
  EXPECT_NE(loop.Personal(1), loop.Model());
}

TEST(FedBn, WithoutNormLayersIsFedAvgBitForBit) {
  RoundLoop fedbn(Builtin("fedbn"), Q4(), {});
  RoundLoop fedavg(Builtin("fedavg"), Q4(), {});
  ASSERT_TRUE(fedbn.SampledRounds(20, 2).ok());
  ASSERT_TRUE(fedavg.SampledRounds(20, 2).ok());
  EXPECT_EQ(fedbn.ModelDigest(), fedavg.ModelDigest());
}

TEST(FedRep, TrainsTheHeadAloneAndThenTheBodyAlone) {
  // Coordinates that depend on each other, one turn by hand: two head steps, then three body steps.
  using A = std::array<std::array<double, 2>, 2>;
  const auto f = std::make_shared<Quadratic>(A{{{1, .5}, {.5, 2}}}, std::array<double, 2>{1, -1});
  RoundLoop loop(Builtin("fedrep"), {{f, 1}},
                 {.steps = 3, .parameters = {{"head_epochs", int64_t{2}}}, .layout = HeadNet()});
  ASSERT_TRUE(loop.Rounds(1).ok());
  Numbers w(2);
  for (int k = 0; k < 2; ++k) w[1] -= .1 * f->Gradient(w)[1];
  for (int k = 0; k < 3; ++k) w[0] -= .1 * f->Gradient(w)[0];
  EXPECT_LT(Distance(loop.Personal(0), w), 1e-15);
  EXPECT_LT(Distance(loop.Model(), {w[0], 0}), 1e-15);  // the head stays on the client
}

TEST(FedRep, AStragglerDoesItsPartOfTheHeadToo) {
  using A = std::array<std::array<double, 2>, 2>;
  const auto f = std::make_shared<Quadratic>(A{{{1, .5}, {.5, 2}}}, std::array<double, 2>{1, -1});
  const CohortConfig slow = {.seed = 3, .straggler_fraction = 1};
  for (const uint32_t steps : {0u, 8u}) {  // the work is given in epochs, or in steps
    SCOPED_TRACE(steps);
    RoundLoop loop(Builtin("fedrep"), {{f, 1}},
                   {.steps = steps,
                    .epochs = 8,
                    .parameters = {{"head_epochs", int64_t{4}}},
                    .layout = HeadNet(),
                    .cohort = slow});
    LocalConfig whole;
    whole.epochs = 8;
    whole.steps = steps;
    const LocalConfig part = training::WorkOf(slow, whole, Round(1), ClientId(0), 10);
    const uint32_t body = steps > 0 ? part.steps : part.epochs;
    ASSERT_LT(body, 8u);
    ASSERT_TRUE(loop.Rounds(1).ok());
    Numbers w(2);
    for (uint32_t k = 0; k < (body + 1) / 2; ++k) w[1] -= .1 * f->Gradient(w)[1];  // ⌈4 · body/8⌉
    for (uint32_t k = 0; k < body; ++k) w[0] -= .1 * f->Gradient(w)[0];
    EXPECT_LT(Distance(loop.Personal(0), w), 1e-15);
  }
}

// A straggler's part is of the round's steps: 32 in the second round.
TEST(FedRep, AStragglerDoesItsPartOfTheHeadInAQuadraticRound) {
  using A = std::array<std::array<double, 2>, 2>;
  const auto f = std::make_shared<Quadratic>(A{{{1, .5}, {.5, 2}}}, std::array<double, 2>{1, -1});
  const CohortConfig slow = {.seed = 3, .straggler_fraction = 1};
  RoundLoop loop(Builtin("fedrep"), {{f, 1}},
                 {.steps = 2,
                  .parameters = {{"head_epochs", int64_t{16}}},
                  .lr_schedule = {.kind = "exponential", .gamma = 0.5},
                  .qsr = 0.28285,
                  .layout = HeadNet(),
                  .cohort = slow});
  ASSERT_TRUE(loop.Rounds(1).ok());
  Numbers w = loop.Personal(0);
  LocalConfig whole;
  whole.steps = 32;
  const uint32_t body = training::WorkOf(slow, whole, Round(2), ClientId(0), 10).steps;
  ASSERT_GE(body, 2u);
  ASSERT_LT(body, 31u);
  ASSERT_TRUE(loop.Rounds(1).ok());
  for (uint32_t k = 0; k < (body + 1) / 2; ++k) w[1] -= .05 * f->Gradient(w)[1];
  for (uint32_t k = 0; k < body; ++k) w[0] -= .05 * f->Gradient(w)[0];
  EXPECT_LT(Distance(loop.Personal(0), w), 1e-14);
}

// A client of eight examples takes eight steps an epoch here.
TEST(FedRep, AStragglerOfOneEpochDoesTheSamePartOfTheHeadsSteps) {
  using A = std::array<std::array<double, 2>, 2>;
  const auto f = std::make_shared<Quadratic>(A{{{1, .5}, {.5, 2}}}, std::array<double, 2>{1, -1});
  const CohortConfig slow = {.seed = 3, .straggler_fraction = 1};
  RoundLoop loop(Builtin("fedrep"), {{f, 8}},
                 {.steps = 0,
                  .epochs = 1,
                  .parameters = {{"head_epochs", int64_t{4}}},
                  .layout = HeadNet(),
                  .cohort = slow});
  const LocalConfig part = training::WorkOf(slow, {}, Round(1), ClientId(0), 80);
  ASSERT_TRUE(part.steps >= 1 && part.steps < 8);
  ASSERT_TRUE(loop.Rounds(1).ok());
  Numbers w(2);
  for (uint32_t k = 0; k < 4 * part.steps; ++k) w[1] -= .1 * f->Gradient(w)[1];
  for (uint32_t k = 0; k < part.steps; ++k) w[0] -= .1 * f->Gradient(w)[0];
  EXPECT_LT(Distance(loop.Personal(0), w), 1e-15);
}

TEST(FedRep, EachClientFindsItsOwnHeadOnACommonBody) {
  RoundLoop loop(Builtin("fedrep"), Separable(), {.layout = HeadNet()});
  ASSERT_TRUE(loop.SampledRounds(2000, 2).ok());
  for (size_t client = 0; client < 4; ++client) {
    EXPECT_NEAR(loop.Personal(client)[1], -2.0 * static_cast<double>(client + 1), 1e-12);
    EXPECT_EQ(loop.Personal(client)[0], loop.Model()[0]);
  }
}

TEST(FedPer, TrainsHeadAndBodyTogether) {
  using A = std::array<std::array<double, 2>, 2>;
  const auto f = std::make_shared<Quadratic>(A{{{1, .5}, {.5, 2}}}, std::array<double, 2>{1, -1});
  RoundLoop loop(Builtin("fedper"), {{f, 1}}, {.steps = 3, .layout = HeadNet()});
  Numbers w(2);
  for (int round = 0; round < 2; ++round) {
    for (int k = 0; k < 3; ++k) {
      const Numbers g = f->Gradient(w);
      for (size_t i = 0; i < 2; ++i) w[i] -= .1 * g[i];
    }
    ASSERT_TRUE(loop.Rounds(1).ok());
    EXPECT_LT(Distance(loop.Personal(0), w), 1e-15);
    EXPECT_LT(Distance(loop.Model(), {w[0], 0}), 1e-15);  // the head stays on the client
  }
}

TEST(FedPer, IsFedBnWhoseLocalTensorsAreTheHead) {
  RoundLoop fedper(Builtin("fedper"), Separable(), {.momentum = .5, .layout = HeadNet()});
  RoundLoop fedbn(
      Builtin("fedbn"), Separable(),
      {.parameters = {{"local", std::string("1.*")}}, .momentum = .5, .layout = HeadNet()});
  ASSERT_TRUE(fedper.SampledRounds(20, 2).ok());
  ASSERT_TRUE(fedbn.SampledRounds(20, 2).ok());
  EXPECT_EQ(fedper.ModelDigest(), fedbn.ModelDigest());
  for (size_t client = 0; client < 4; ++client)
    EXPECT_EQ(fedper.Personal(client), fedbn.Personal(client));
}

TEST(FedRep, TheHeadMayBeNamed) {
  RoundLoop loop(Builtin("fedrep"), Separable(),
                 {.parameters = {{"head", "0.*"}}, .layout = HeadNet()});
  ASSERT_TRUE(loop.Rounds(3).ok());
  EXPECT_EQ(loop.Model()[0], 0);
  EXPECT_NE(loop.Model()[1], 0);
}

}  // namespace
}  // namespace macaw::algorithms
