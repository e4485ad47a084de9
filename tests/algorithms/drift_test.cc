#include "algorithms/around/drift.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "algorithms/around/registry.h"
#include "algorithms/builtin.h"
#include "sdk/testing/round_loop.h"

namespace macaw::algorithms {
namespace {

using testing::HasSubstr;

using Matrix = std::array<std::array<double, 2>, 2>;
constexpr Matrix kIdentity = {{{1, 0}, {0, 1}}};

// f_i = ½‖w − b_i‖² and one step of rate 0.1 from 0: Δ_i = 0.1·b_i.
std::vector<TestPopulationClient> BowlsAround(const std::vector<std::array<double, 2>>& centres,
                                              const std::vector<uint32_t>& examples) {
  std::vector<TestPopulationClient> clients;
  for (size_t i = 0; i < centres.size(); ++i)
    clients.push_back({std::make_shared<Quadratic>(kIdentity, centres[i]), examples[i]});
  return clients;
}

std::map<std::string, double> MetricsOf(const std::vector<std::array<double, 2>>& centres,
                                        const std::vector<uint32_t>& examples) {
  RoundLoop loop(WithDrift(Builtin("fedavg")), BowlsAround(centres, examples), {.steps = 1});
  EXPECT_TRUE(loop.Rounds(1).ok());
  return loop.metrics();
}

TEST(Drift, IsTheNormOfEachUpdateAndOfTheirMean) {
  // Lengths 0.5 and 0.1, weights 1/4 and 3/4: the mean is (0.075, 0.175).
  const auto metrics = MetricsOf({{3, 4}, {0, 1}}, {1, 3});
  EXPECT_NEAR(metrics.at("drift_mean"), 0.3, 1e-15);
  EXPECT_NEAR(metrics.at("drift_max"), 0.5, 1e-15);
  const double square = 0.075 * 0.075 + 0.175 * 0.175;
  EXPECT_NEAR(metrics.at("update_norm"), std::sqrt(square), 1e-15);
  EXPECT_NEAR(metrics.at("update_agreement"), square / (0.25 * 0.25 + 0.75 * 0.01), 1e-14);
}

// Each client's cosine counts its weight times the length of its update.
TEST(Drift, CosineIsTheMeanOfTheClientsCosinesWithTheMean) {
  const std::vector<std::array<double, 2>> centres = {{3, 4}, {0, 1}, {-2, 1}};
  const std::vector<uint32_t> examples = {1, 3, 2};
  std::array<double, 2> mean = {0, 0};
  for (size_t i = 0; i < centres.size(); ++i)
    for (size_t c = 0; c < 2; ++c) mean[c] += examples[i] / 6.0 * 0.1 * centres[i][c];
  double sum = 0, weight = 0;
  for (size_t i = 0; i < centres.size(); ++i) {
    const double norm = 0.1 * std::hypot(centres[i][0], centres[i][1]);
    const double inner = 0.1 * (centres[i][0] * mean[0] + centres[i][1] * mean[1]);
    const double cosine = inner / (norm * std::hypot(mean[0], mean[1]));
    sum += examples[i] * norm * cosine;
    weight += examples[i] * norm;
  }
  EXPECT_NEAR(MetricsOf(centres, examples).at("update_cosine"), sum / weight, 1e-14);
  EXPECT_NEAR(MetricsOf({{1, 2}, {1, 2}}, {1, 4}).at("update_cosine"), 1, 1e-14);
  EXPECT_NEAR(MetricsOf({{1, 2}, {-1, -2}}, {1, 1}).at("update_cosine"), 0, 1e-14);
  EXPECT_NEAR(MetricsOf({{1, 0}, {0, 1}}, {1, 1}).at("update_cosine"), std::sqrt(0.5), 1e-14);
  EXPECT_TRUE(std::isnan(MetricsOf({{0, 0}, {0, 0}}, {1, 1}).at("update_cosine")));
}

// Also where the parameters are no multiple of eight.
TEST(Drift, NormsAreOfModelsOfAnySize) {
  for (const size_t size : {1, 7, 8, 9, 21}) {
    Numbers centre(size);
    double square = 0;
    for (size_t i = 0; i < size; ++i) {
      centre[i] = static_cast<double>(i) - 3.5;
      square += 0.01 * centre[i] * centre[i];
    }
    RoundLoop loop(WithDrift(Builtin("fedavg")), {{std::make_shared<SquaredDistance>(centre), 1}},
                   {.steps = 1, .start = Numbers(size)});
    ASSERT_TRUE(loop.Rounds(1).ok());
    EXPECT_NEAR(loop.metrics().at("drift_mean"), std::sqrt(square), 1e-14) << size;
    EXPECT_NEAR(loop.metrics().at("update_norm"), std::sqrt(square), 1e-14) << size;
  }
}

TEST(Drift, AgreementIsOneOfEqualsAndZeroOfOpposites) {
  EXPECT_NEAR(MetricsOf({{1, 2}, {1, 2}, {1, 2}}, {1, 2, 5}).at("update_agreement"), 1, 1e-14);
  EXPECT_NEAR(MetricsOf({{1, 2}, {-1, -2}}, {1, 1}).at("update_agreement"), 0, 1e-14);
  EXPECT_NEAR(MetricsOf({{1, 0}, {0, 1}}, {1, 1}).at("update_agreement"), 0.5, 1e-14);
  // Nobody moves.
  EXPECT_TRUE(std::isnan(MetricsOf({{0, 0}, {0, 0}}, {1, 1}).at("update_agreement")));
}

TEST(Drift, ChangesNoBitOfTheModel) {
  for (const char* name : {"fedavg", "fedprox", "scaffold", "fedadam", "fednova", "qfedavg", "mime",
                           "ditto", "fedexp", "term", "afl", "feddyn"}) {
    for (const DType dtype : {DType::kF32, DType::kF64}) {
      const RoundLoop::Options options{.steps = 3, .dtype = dtype, .start = {1, -1}};
      RoundLoop plain(Builtin(name), Q4(), options);
      RoundLoop told(WithDrift(Builtin(name)), Q4(), options);
      for (int round = 0; round < 5; ++round) {
        ASSERT_TRUE(plain.Round({0, 2, 3}).ok());
        const absl::Status status = told.Round({0, 2, 3});
        ASSERT_TRUE(status.ok()) << name << ": " << status;
        ASSERT_EQ(plain.ModelDigest(), told.ModelDigest()) << name;
      }
      EXPECT_GT(told.metrics().at("drift_max"), 0) << name;
      EXPECT_GE(told.metrics().at("drift_max"), told.metrics().at("drift_mean")) << name;
    }
  }
}

TEST(Drift, IsTheSameInAnyOrderOfClients) {
  RoundLoop one(WithDrift(Builtin("fedavg")), Q4(), {.steps = 3});
  RoundLoop other(WithDrift(Builtin("fedavg")), Q4(), {.steps = 3});
  ASSERT_TRUE(one.Round({0, 1, 2, 3}).ok());
  ASSERT_TRUE(other.Round({3, 1, 0, 2}).ok());
  EXPECT_EQ(one.metrics(), other.metrics());
}

TEST(Drift, RefusesRulesWithoutAMeanOfUpdates) {
  const auto refusal = [](const char* name) {
    algorithms::Setup setup;
    setup.layout = ParameterLayout::Scalars("w", 2, DType::kF32);
    setup.clients = 10;
    setup.total_weight = 10;
    setup.cohort.size = 5;
    for (const ParameterSpec& spec : Builtin(name).parameters)
      setup.config.parameters[spec.name] = spec.default_value;
    return std::string(MakeSchema(WithDrift(Builtin(name)), setup).status().message());
  };
  EXPECT_EQ(refusal("fedavg"), "");
  for (const char* name : {"median", "local"})
    EXPECT_THAT(refusal(name), HasSubstr("evaluation.updates")) << name;
  EXPECT_THAT(refusal("ifca"), HasSubstr("several models"));
}

TEST(Drift, IsRefusedBesideAVote) {
  Registry registry;
  registry.AddBuiltin(BuiltinAlgorithms());
  RunPlan run;
  run.algorithm = *registry.Complete({"fedavg", {}});
  run.evaluation.updates = true;
  run.update.codec = {"majority 0.01"};
  EXPECT_THAT(std::string(registry.RuleOf(run).status().message()),
              testing::AllOf(HasSubstr("evaluation.updates"), HasSubstr("majority")));
}

}  // namespace
}  // namespace macaw::algorithms
