#include "tests/algorithms/sketches/sketches.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/random.h"
#include "tests/algorithms/round_loop.h"

namespace macaw::algorithms {
namespace {

constexpr std::array<double, 2> kOptimum = {.407946308724832, 2.725422818791946};
constexpr std::array<double, 2> kUniformOptimum = {.305635838150289, 2.414017341040462};

// `size` of the four clients, drawn anew each round.
absl::Status RunSampled(RoundLoop& loop, int rounds, uint64_t size) {
  for (int round = 1; round <= rounds; ++round) {
    RandomStream stream(
        {.seed = 1, .purpose = Purpose::kCohort, .round = Round(static_cast<uint32_t>(round))});
    const std::vector<uint64_t> drawn = SampleWithoutReplacement(stream, 4, size);
    if (absl::Status status = loop.Round({drawn.begin(), drawn.end()}); !status.ok()) return status;
  }
  return absl::OkStatus();
}

TEST(ScaffoldSketch, ReachesTheUniformOptimum) {
  for (const int64_t option : {1, 2}) {
    for (const uint64_t size : {4, 2}) {
      RoundLoop loop(sketches::Scaffold(), Q4(),
                     {.steps = 0, .epochs = 2, .parameters = {{"option", option}}});
      ASSERT_TRUE(RunSampled(loop, 4000, size).ok());
      EXPECT_LT(Distance(loop.Model(), kUniformOptimum), 1e-12)
          << "option " << option << ", " << size << " a round";
    }
  }
}

TEST(ScaffoldSketch, WeightedReachesTheWeightedOptimum) {
  for (const uint64_t size : {4, 2}) {
    RoundLoop loop(sketches::Scaffold(), Q4(),
                   {.steps = 0, .epochs = 2, .parameters = {{"weighted", true}}});
    ASSERT_TRUE(RunSampled(loop, 4000, size).ok());
    EXPECT_LT(Distance(loop.Model(), kOptimum), 1e-12) << size;
  }
}

TEST(ScaffoldSketch, KeepsTheServersControlAtTheMeanOfTheClients) {
  RoundLoop loop(sketches::Scaffold(), Q4(), {.steps = 0, .epochs = 2});
  for (int round = 1; round <= 50; ++round) {
    ASSERT_TRUE(RunSampled(loop, 1, 2).ok());
    std::array<double, 2> mean{};
    for (size_t client = 0; client < 4; ++client) {
      for (size_t i = 0; i < 2; ++i) mean[i] += loop.State(client, 0)[i] / 4;
    }
    const ServerState saved = loop.server().Save();
    const std::span<const double> control = saved.vectors.at("control").As<double>();
    EXPECT_LT(Distance(mean, {control[0], control[1]}), 1e-14);
  }
}

TEST(ScaffoldSketch, ARoundWithoutClientsLeavesModelAndControl) {
  RoundLoop loop(sketches::Scaffold(), Q4(), {});
  ASSERT_TRUE(loop.Rounds(2).ok());
  const ServerState before = loop.server().Save();
  ASSERT_TRUE(loop.Round({}).ok());
  const ServerState after = loop.server().Save();
  for (const auto& [name, vector] : before.vectors) {
    EXPECT_EQ(DigestOfValues(vector.view()), DigestOfValues(after.vectors.at(name).view())) << name;
  }
}

TEST(DittoSketch, TrainsTheGlobalModelAsFedAvgDoes) {
  RoundLoop ditto(sketches::Ditto(), Q4(), {});
  RoundLoop fedavg(Builtin("fedavg"), Q4(), {});
  ASSERT_TRUE(ditto.Rounds(10).ok());
  ASSERT_TRUE(fedavg.Rounds(10).ok());
  EXPECT_EQ(ditto.ModelDigest(), fedavg.ModelDigest());
}

TEST(DittoSketch, KeepsAPersonalModelBetweenItsOwnMinimumAndTheGlobalOne) {
  const double lambda = 0.5;
  RoundLoop loop(sketches::Ditto(), Q4(), {.parameters = {{"lambda", lambda}}, .start = {5, 5}});
  EXPECT_EQ(loop.Personal(2),
            (std::array<double, 2>{5, 5}));  // a first turn begins at the global model
  ASSERT_TRUE(loop.Rounds(1000).ok());
  for (size_t client = 0; client < 4; ++client) {
    // (A + λI)·v = A·b + λ·x
    const Quadratic f = Q4()[client].objective;
    const std::array<double, 2> v = loop.Personal(client);
    for (size_t i = 0; i < 2; ++i) {
      double residual = lambda * (v[i] - loop.Model()[i]);
      for (size_t j = 0; j < 2; ++j) residual += f.a[i][j] * (v[j] - f.b[j]);
      EXPECT_LT(std::fabs(residual), 1e-12);
    }
  }
}

TEST(MimeSketch, ReachesTheOptimumInTwoPhases) {
  RoundLoop loop(sketches::Mime(), Q4(), {});
  ASSERT_TRUE(loop.Rounds(1000).ok());
  EXPECT_LT(Distance(loop.Model(), kOptimum), 1e-13);
}

TEST(MimeSketch, WithOneStepIsGradientDescent) {
  const RoundLoop::Options options = {.steps = 1};
  RoundLoop mime(sketches::Mime(), Q4(), options);
  RoundLoop descent(Builtin("fedavg"), Q4(), options);
  ASSERT_TRUE(mime.Rounds(10).ok());
  ASSERT_TRUE(descent.Rounds(10).ok());
  EXPECT_LT(Distance(mime.Model(), descent.Model()), 1e-14);
}

TEST(MimeSketch, ARoundWithoutClientsLeavesTheModel) {
  RoundLoop loop(sketches::Mime(), Q4(), {.start = {1, 2}});
  const Digest before = loop.ModelDigest();
  ASSERT_TRUE(loop.Round({}).ok());
  EXPECT_EQ(loop.ModelDigest(), before);
}

}  // namespace
}  // namespace macaw::algorithms
