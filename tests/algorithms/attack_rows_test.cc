#include "algorithms/around/attack_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/algorithms/attack_util.h"
#include "tests/algorithms/robust_util.h"

namespace macaw::algorithms {
namespace {

using testing::HasSubstr;

struct Made {
  Numbers vector;
  double gamma = 0;
};
Made LieOf(const std::string& kind, const std::string& perturbation,
           const std::vector<Numbers>& honest, DType dtype = DType::kF64) {
  AttackConfig attack = Of(kind, .2);
  attack.perturbation = perturbation;
  const LayoutPtr layout = Plain(static_cast<int64_t>(honest[0].size()), dtype);
  std::vector<FlatVector> vectors;
  for (const Numbers& numbers : honest) {
    vectors.emplace_back(layout);
    SetNumbers(numbers, vectors.back().view());
  }
  std::vector<const FlatVector*> rows;
  for (const FlatVector& vector : vectors) rows.push_back(&vector);
  const RowsLie lie = LieFromRows(attack, rows);
  return {NumbersOf(lie.vector.view()), lie.gamma};
}

// μ = (2, 1), σ = (√(8/3), √2); squared distances among them 16, 13 and 13, to μ 5, 5 and 4.
const std::vector<Numbers>& Three() {
  static const auto& three = *new std::vector<Numbers>{{0, 0}, {4, 0}, {2, 3}};
  return three;
}

TEST(MinMax, GoesAsFarAsTwoHonestClientsAreApartByHand) {
  // −σ: the farthest is (2, 3), 4 + 2γ·2√2 + γ²·14/3 = 16.
  Made lie = LieOf("min-max", "std", Three());
  double gamma = (16 - 4 * std::sqrt(2)) * 3 / 28;
  EXPECT_NEAR(lie.gamma, gamma, 1e-12);
  EXPECT_LT(Distance(lie.vector, {2 - gamma * std::sqrt(8.0 / 3), 1 - gamma * std::sqrt(2)}),
            1e-12);
  // −μ/‖μ‖: the farthest is (4, 0), 5 + 2γ·3/√5 + γ² = 16.
  lie = LieOf("min-max", "unit", Three());
  EXPECT_NEAR(lie.gamma, std::sqrt(5), 1e-12);
  EXPECT_LT(Distance(lie.vector, {0, 0}), 1e-12);
  // −sign(μ): the farthest is (2, 3), 4 + 4γ + 2γ² = 16.
  lie = LieOf("min-max", "sign", Three());
  gamma = std::sqrt(7) - 1;
  EXPECT_NEAR(lie.gamma, gamma, 1e-12);
  EXPECT_LT(Distance(lie.vector, {2 - gamma, 1 - gamma}), 1e-12);
}

TEST(MinSum, GoesAsFarAsAnHonestClientIsFromAllOthersByHand) {
  // 14 + 3·γ²·‖p‖² = 29, since Σ (μ − x_i) = 0.
  for (const auto& [perturbation, squared] :
       {std::pair("std", 14.0 / 3), std::pair("unit", 1.0), std::pair("sign", 2.0)}) {
    const Made lie = LieOf("min-sum", perturbation, Three());
    EXPECT_NEAR(lie.gamma, std::sqrt(15 / (3 * squared)), 1e-12) << perturbation;
  }
  const double gamma = std::sqrt(15 / 14.0);
  EXPECT_LT(Distance(LieOf("min-sum", "std", Three()).vector,
                     {2 - gamma * std::sqrt(8.0 / 3), 1 - gamma * std::sqrt(2)}),
            1e-12);
}

// Whatever the updates are: it is within the bound, and a little further it would not be.
TEST(MinMaxAndMinSum, AreTheFarthestWithinTheirBound) {
  RandomStream random({.seed = 4});
  for (int trial = 0; trial < 20; ++trial) {
    std::vector<Numbers> honest(5, Numbers(6));
    Numbers mean(6);
    for (Numbers& row : honest) {
      for (size_t i = 0; i < 6; ++i) mean[i] += (row[i] = random.Normal() + 1) / 5;
    }
    const auto squared = [](const Numbers& a, const Numbers& b) {
      double sum = 0;
      for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
      return sum;
    };
    double largest = 0, largest_sum = 0;
    for (const Numbers& a : honest) {
      double sum = 0;
      for (const Numbers& b : honest) {
        largest = std::max(largest, squared(a, b));
        sum += squared(a, b);
      }
      largest_sum = std::max(largest_sum, sum);
    }
    for (const char* perturbation : {"std", "unit", "sign"}) {
      for (const bool max : {true, false}) {
        const Made lie = LieOf(max ? "min-max" : "min-sum", perturbation, honest);
        const auto value = [&](double stretch) {
          Numbers at(6);
          for (size_t i = 0; i < 6; ++i) at[i] = mean[i] + stretch * (lie.vector[i] - mean[i]);
          double far = 0, sum = 0;
          for (const Numbers& row : honest) {
            far = std::max(far, squared(at, row));
            sum += squared(at, row);
          }
          return max ? far : sum;
        };
        const double limit = max ? largest : largest_sum;
        EXPECT_GT(lie.gamma, 0);
        EXPECT_LT(value(1), limit * (1 + 1e-12));
        EXPECT_GT(value(1.001), limit * (1 + 1e-6));
      }
    }
  }
}

TEST(MinMaxAndMinSum, CannotBeToldWhereHonestClientsAgree) {
  for (const char* kind : {"min-max", "min-sum"}) {
    for (const char* perturbation : {"std", "unit", "sign"}) {
      Made lie = LieOf(kind, perturbation, {{3, -1}});
      EXPECT_EQ(lie.gamma, 0);
      EXPECT_EQ(lie.vector, (Numbers{3, -1}));
      lie = LieOf(kind, perturbation, {{3, -1}, {3, -1}, {3, -1}}, DType::kF32);
      EXPECT_NEAR(lie.gamma, 0, 1e-6);
      EXPECT_LT(Distance(lie.vector, {3, -1}), 1e-6);
      EXPECT_EQ(LieOf(kind, perturbation, {{0, 0}, {0, 0}}).vector, (Numbers{0, 0}));
    }
  }
}

TEST(Mimic, CopiesTheFirstHonestClient) {
  EXPECT_EQ(LieOf("mimic", "std", {{7, -2}, {1, 1}}).vector, (Numbers{7, -2}));
}

TEST(AttacksOnRows, LeaveStatisticsHonest) {
  const LayoutPtr layout =
      *ParameterLayout::Make({{.name = "weight", .shape = {1}},
                              {.name = "running_mean", .shape = {1}, .group = Group::kBuffer}},
                             DType::kF64);
  const uint64_t weight = layout->Find("weight")->offset;
  const uint64_t statistic = layout->Find("running_mean")->offset;
  const auto lie = [&](const char* kind, double spread) {
    std::vector<FlatVector> vectors;
    std::vector<const FlatVector*> rows;
    for (int k = 0; k < 3; ++k) {
      vectors.emplace_back(layout);
      vectors.back().As<double>()[weight] = k;
      vectors.back().As<double>()[statistic] = 10 + spread * k;
    }
    for (const FlatVector& vector : vectors) rows.push_back(&vector);
    return LieFromRows(Of(kind, .2), rows);
  };
  for (const char* kind : {"min-max", "min-sum"}) {
    const RowsLie far = lie(kind, 1000), near = lie(kind, 0);
    EXPECT_EQ(far.gamma, near.gamma) << "statistics have no part in distances";
    EXPECT_DOUBLE_EQ(far.vector.As<double>()[statistic], 1010);
  }
  EXPECT_EQ(lie("mimic", 1000).vector.As<double>()[statistic], 10);
}

TEST(AttacksOnRows, SayGammaOfTheFirstChannel) {
  for (const char* kind : {"min-max", "min-sum"}) {
    for (const char* rule : {"fedavg", "median", "scaffold"}) {
      RoundLoop loop(Under(Of(kind, .5), rule, 4), Q4(), {});
      ASSERT_TRUE(loop.Rounds(1).ok());
      EXPECT_GT(loop.metrics().at("attack_gamma"), 0) << rule;
    }
  }
  RoundLoop mimic(Under(Of("mimic", .5), "fedavg", 4), Q4(), {});
  ASSERT_TRUE(mimic.Rounds(1).ok());
  EXPECT_EQ(mimic.metrics().count("attack_gamma"), 0u);
}

TEST(AttacksOnRows, TakeAClientOnceARound) {
  for (const char* kind : {"min-max", "min-sum", "mimic"}) {
    auto setup = SetupOfRule("fedavg", {}, Plain(2, DType::kF32));
    setup.cohort = {.size = 4, .sampling = "proportional", .weight = WeightPolicy::kUniform};
    setup.clients = 10;
    EXPECT_THAT(
        std::string(MakeSchema(Under(Of(kind, .5), "fedavg", 10), setup).status().message()),
        HasSubstr("\"uniform\""));
    setup.cohort.sampling = "uniform";
    EXPECT_TRUE(MakeSchema(Under(Of(kind, .5), "fedavg", 10), setup).ok());
  }
}

// In the mean of all, as in a robust rule's rows.
TEST(AttacksOnRows, AreAddedToMeansAsIfTheyHadBeenSent) {
  for (const char* kind : {"min-max", "min-sum", "mimic"}) {
    std::vector<TestPopulationClient> equal = Q4();
    for (TestPopulationClient& client : equal) client.examples = 1;
    RoundLoop sums(Under(Of(kind, .5), "fedavg", 4), equal, {});
    RoundLoop rows(Under(Of(kind, .5), "trimmed_mean", 4), equal, {.parameters = {{"beta", 0.0}}});
    ASSERT_TRUE(sums.Rounds(5).ok());
    ASSERT_TRUE(rows.Rounds(5).ok());
    EXPECT_LT(Distance(sums.Model(), rows.Model()), 1e-12) << kind;
  }
  // With weights: mimic's hostile clients have their own.
  const AttackConfig attack = Of("mimic", .5);
  const HostileClients hostile(attack, 4, kSeed);
  size_t first = 0;
  while (hostile.Contains(ClientId(first))) ++first;
  Numbers expected = {0, 0};
  double total = 0;
  for (size_t k = 0; k < 4; ++k) {
    RoundLoop alone(Builtin("fedavg"), Q4(), {});
    ASSERT_TRUE(alone.Round({hostile.Contains(ClientId(k)) ? first : k}).ok());
    total += Q4()[k].examples;
    for (size_t i = 0; i < 2; ++i) expected[i] += Q4()[k].examples * alone.Model()[i];
  }
  for (double& value : expected) value /= total;
  RoundLoop loop(Under(attack, "fedavg", 4), Q4(), {});
  ASSERT_TRUE(loop.Rounds(1).ok());
  EXPECT_LT(Distance(loop.Model(), expected), 1e-12);
}

}  // namespace
}  // namespace macaw::algorithms
