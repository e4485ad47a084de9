// Ranks that change during a run (update.adapt), around a rule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/around/factored.h"
#include "algorithms/around/registry.h"
#include "algorithms/builtin.h"
#include "sdk/testing/round_loop.h"

namespace macaw::algorithms {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// Two matrices of 12 × 12 and a bias. With rank 2 each can have 1 to 4.
constexpr size_t kSide = 12, kMatrix = kSide * kSide, kSize = 2 * kMatrix + 8;

LayoutPtr TwoMatrices(DType dtype) {
  return *ParameterLayout::Make({{.name = "a", .shape = {kSide, kSide}},
                                 {.name = "b", .shape = {kSide, kSide}},
                                 {.name = "bias", .shape = {8}}},
                                dtype);
}

// f = ½‖x − o‖²: the first update is a multiple of o. `flat` has twelve equal singular values,
// `steep` one that is large.
Numbers Optimum(double flat_a, double steep_a, double flat_b, double steep_b) {
  Numbers o(kSize);
  for (size_t i = 0; i < kSide; ++i) {
    o[i * kSide + i] = flat_a + (i == 0 ? steep_a : 0);
    o[kMatrix + i * kSide + i] = flat_b + (i == 0 ? steep_b : 0);
  }
  return o;
}

const std::vector<Numbers>& FlatThenSteep() {
  static const auto* const optima = new std::vector<Numbers>(4, Optimum(1, 0, 0.001, 1));
  return *optima;
}

UpdateConfig Adapting(const char* codec, uint32_t adapt, std::string feedback = "auto") {
  return {.codec = {codec}, .feedback = std::move(feedback), .adapt = adapt};
}

RoundLoop Loop(const UpdateConfig& update, const std::vector<Numbers>& optima,
               DType dtype = DType::kF64, std::vector<uint32_t> examples = {}) {
  std::vector<TestPopulationClient> population;
  for (size_t i = 0; i < optima.size(); ++i) {
    population.push_back(
        {std::make_shared<SquaredDistance>(optima[i]), examples.empty() ? 1 : examples[i]});
  }
  CohortConfig cohort;
  cohort.size = optima.size();
  cohort.weight = examples.empty() ? WeightPolicy::kUniform : WeightPolicy::kExamples;
  return {Factored(Builtin("fedavg"), update),
          population,
          {.steps = 1,
           .dtype = dtype,
           .start = Numbers(kSize),
           .lr = 0.2,
           .layout = TwoMatrices(dtype),
           .cohort = cohort}};
}

// The columns of a saved basis that are not zero; they are orthonormal, and the others behind them.
std::vector<size_t> RanksOf(const RoundLoop& loop, const std::string& basis) {
  const Numbers values = loop.Saved(basis);
  std::vector<size_t> ranks;
  for (size_t at = 0; at < values.size(); at += 4 * kSide) {
    size_t rank = 0;
    for (size_t k = 0; k < 4; ++k) {
      for (size_t l = 0; l <= k; ++l) {
        double product = 0;
        for (size_t i = 0; i < kSide; ++i)
          product += values[at + k * kSide + i] * values[at + l * kSide + i];
        if (l < k) {
          EXPECT_NEAR(product, 0, 1e-6) << basis;
          continue;
        }
        if (product == 0) continue;
        EXPECT_NEAR(product, 1, 1e-6) << basis;
        EXPECT_EQ(rank, k) << basis;
        ++rank;
      }
    }
    ranks.push_back(rank);
  }
  return ranks;
}

TEST(ChosenRanks, AddErrorsToWhatIsSent) {
  const RoundLoop fixed = Loop(Adapting("acpsgd 2", 0), FlatThenSteep());
  EXPECT_EQ(fixed.schema().up.size(), 2u);
  EXPECT_EQ(fixed.schema().metrics.size(), 1u);
  const RoundLoop loop = Loop(Adapting("acpsgd 2", 5), FlatThenSteep(), DType::kF32);
  ASSERT_EQ(loop.schema().up.size(), 3u);
  const aggregation::ChannelSpec& errors = loop.schema().up[2];
  EXPECT_EQ(errors.name, "delta_errors");
  EXPECT_EQ(errors.layout->count(), 8u);
  EXPECT_EQ(errors.layout->dtype(), DType::kF64);
  EXPECT_EQ(errors.reduction, loop.schema().up[0].reduction);
  const RoundLoop power = Loop(Adapting("powersgd 2", 5), FlatThenSteep());
  EXPECT_THAT(power.schema().up[2].phases, ElementsAre(kFirst));
}

TEST(ChosenRanks, AreInForceFromTheNextRoundOn) {
  for (const char* codec : {"acpsgd 2", "powersgd 2"}) {
    SCOPED_TRACE(codec);
    RoundLoop loop = Loop(Adapting(codec, 3), FlatThenSteep());
    EXPECT_THAT(RanksOf(loop, "update_p_delta"), ElementsAre(2, 2));
    ASSERT_TRUE(loop.Rounds(1).ok());
    EXPECT_EQ(loop.metrics().at("update_rank"), 2);
    // Of the flat matrix every rank leaves out 1 less, of the steep one 1e-6.
    for (const char* basis : {"update_p_delta", "update_q_delta"})
      EXPECT_THAT(RanksOf(loop, basis), ElementsAre(3, 1)) << basis;
    for (int round = 2; round <= 9; ++round) {
      const std::vector<size_t> before = RanksOf(loop, "update_q_delta");
      ASSERT_TRUE(loop.Rounds(1).ok());
      EXPECT_EQ(loop.metrics().at("update_rank"), static_cast<double>(before[0] + before[1]) / 2)
          << round;
      EXPECT_EQ(RanksOf(loop, "update_q_delta"), RanksOf(loop, "update_p_delta"));
      if (round != 4 && round != 7) {
        EXPECT_EQ(RanksOf(loop, "update_p_delta"), before) << round;
      }
      EXPECT_LE(loop.metrics().at("update_rank"), 2);
    }
  }
}

// Each client alone would choose 3 for its own flat matrix. The mean is the larger client's choice,
// and with its weight the smaller one's.
TEST(ChosenRanks, AreThoseOfTheCohort) {
  const std::vector<Numbers> optima = {Optimum(1, 0, 0.001, 1), Optimum(0.001, 3, 3, 0)};
  const auto ranks = [&](std::vector<Numbers> of, std::vector<uint32_t> examples) {
    RoundLoop loop = Loop(Adapting("acpsgd 2", 9), of, DType::kF64, std::move(examples));
    EXPECT_TRUE(loop.Rounds(1).ok());
    return RanksOf(loop, "update_p_delta");
  };
  EXPECT_THAT(ranks({optima[0]}, {}), ElementsAre(3, 1));
  EXPECT_THAT(ranks({optima[1]}, {}), ElementsAre(1, 3));
  EXPECT_THAT(ranks({optima[0], optima[1]}, {}), ElementsAre(1, 3));
  EXPECT_THAT(ranks({optima[1], optima[0]}, {}), ElementsAre(1, 3));
  EXPECT_THAT(ranks({optima[0], optima[1]}, {99, 1}), ElementsAre(3, 1));
}

// Where the choice is R again, the run is that of a fixed rank, bit for bit.
TEST(ChosenRanks, ThatStayChangeNothing) {
  Numbers halves(kSize);  // singular values 1, ½, ¼, …
  for (size_t i = 0; i < kSide; ++i)
    halves[i * kSide + i] = halves[kMatrix + i * kSide + i] = std::exp2(-static_cast<double>(i));
  const std::vector<Numbers> equal(3, halves);
  for (const char* codec : {"acpsgd 2", "powersgd 2"}) {
    RoundLoop fixed = Loop(Adapting(codec, 0), equal), adapts = Loop(Adapting(codec, 1000), equal);
    ASSERT_TRUE(fixed.Rounds(7).ok() && adapts.Rounds(7).ok());
    ASSERT_THAT(RanksOf(adapts, "update_p_delta"), ElementsAre(2, 2));
    EXPECT_EQ(adapts.ModelDigest(), fixed.ModelDigest()) << codec;
  }
}

TEST(ChosenRanks, LeaveTheRunAtTheOptimum) {
  std::vector<Numbers> optima;
  Numbers mean(kSize);
  RandomStream random({.seed = 5});
  for (int client = 0; client < 6; ++client) {
    Numbers optimum = Optimum(1, 0, 0.1, 5);
    for (double& value : optimum) value += 0.3 * random.Normal();
    for (size_t i = 0; i < kSize; ++i) mean[i] += optimum[i] / 6;
    optima.push_back(std::move(optimum));
  }
  for (const char* codec : {"acpsgd 2", "powersgd 2"}) {
    for (const char* feedback : {"residual", "none"}) {
      RoundLoop loop = Loop(Adapting(codec, 7, feedback), optima);
      ASSERT_TRUE(loop.Rounds(1500).ok());
      EXPECT_LT(Distance(loop.Model(), mean), 1e-6) << codec << ", " << feedback;
    }
  }
}

TEST(ChosenRanks, GoOnAfterAResumeWithTheSameBytes) {
  for (const char* codec : {"acpsgd 2", "powersgd 2"}) {
    for (const DType dtype : {DType::kF32, DType::kF64}) {
      const auto loop = [&] { return Loop(Adapting(codec, 3), FlatThenSteep(), dtype); };
      RoundLoop whole = loop(), half = loop(), other = loop();
      ASSERT_TRUE(whole.Rounds(9).ok());
      ASSERT_TRUE(half.Rounds(5).ok());
      ASSERT_THAT(RanksOf(half, "update_p_delta"), Not(ElementsAre(2, 2)));
      ASSERT_TRUE(other.ResumeFrom(half).ok());
      ASSERT_TRUE(other.Rounds(4).ok());
      EXPECT_EQ(other.ModelDigest(), whole.ModelDigest());
      EXPECT_EQ(other.Saved("update_q_delta"), whole.Saved("update_q_delta"));
    }
  }
}

TEST(ChosenRanks, StayAfterARoundThatCountsNobody) {
  for (const char* codec : {"acpsgd 2", "powersgd 2"}) {
    RoundLoop loop = Loop(Adapting(codec, 3), FlatThenSteep());
    ASSERT_TRUE(loop.Round({0, 1}, {0, 1}).ok());
    EXPECT_THAT(RanksOf(loop, "update_p_delta"), ElementsAre(2, 2)) << "round 1";
    ASSERT_TRUE(loop.Rounds(3).ok());
    EXPECT_THAT(RanksOf(loop, "update_p_delta"), ElementsAre(3, 1)) << "round 4";
  }
}

std::string NotesOn(const UpdateConfig& update, const Setup& setup) {
  const std::vector<std::string> notes = Factored(Builtin("fedavg"), update).notes(setup);
  return notes.size() > 1 ? notes.back() : "";
}

TEST(ChosenRanks, AreSaidInTheNotes) {
  algorithms::Setup setup = Loop(Adapting("acpsgd 2", 5), FlatThenSteep()).setup();
  EXPECT_THAT(NotesOn(Adapting("acpsgd 2", 0), setup), IsEmpty());
  EXPECT_THAT(NotesOn(Adapting("acpsgd 2", 5), setup),
              AllOf(HasSubstr("1, 6, 11"), HasSubstr("2 matrices, from 1 to 4"),
                    Not(HasSubstr("nothing is lost"))));
  EXPECT_THAT(NotesOn(Adapting("acpsgd 5", 5), setup), HasSubstr("a smaller RANK"));
  setup.layout = *ParameterLayout::Make({{.name = "a", .shape = {12, 12}}}, DType::kF64);
  EXPECT_THAT(NotesOn(Adapting("acpsgd 2", 5), setup),
              AllOf(HasSubstr("1 matrix, from"), HasSubstr("single")));
}

TEST(ChosenRanks, RefuseARuleWithAMetricOfTheSameName) {
  const algorithms::Setup setup = Loop(Adapting("acpsgd 2", 5), FlatThenSteep()).setup();
  Description rule = Builtin("fedavg");
  rule.schema = [schema = rule.schema](const algorithms::Setup& of) -> absl::StatusOr<Schema> {
    Schema with = *schema(of);
    with.metrics = {{kUpdateRankMetric, std::nullopt}};
    return with;
  };
  EXPECT_THAT(std::string(Factored(rule, Adapting("acpsgd 2", 5)).check(setup).message()),
              HasSubstr(kUpdateRankMetric));
  EXPECT_TRUE(Factored(rule, Adapting("acpsgd 2", 0)).check(setup).ok());
}

}  // namespace
}  // namespace macaw::algorithms
