#include <gtest/gtest.h>

#include "sdk/testing/round_loop.h"

namespace macaw::algorithms {
namespace {

RoundLoop TopK(std::vector<TestPopulationClient> population, double fraction, bool feedback) {
  const auto rule = OfPlugin(MACAW_PLUGIN_FILE, "topk");
  EXPECT_TRUE(rule.ok()) << rule.status();
  return {*rule,
          std::move(population),
          {.steps = 1, .parameters = {{"fraction", fraction}, {"feedback", feedback}}}};
}

// Two clients that pull the first number apart, strongly, and the second one to 1 together, weakly.
std::vector<TestPopulationClient> Tug() {
  const auto client = [](double first) {
    return TestPopulationClient{
        std::make_shared<Quadratic>(std::array<std::array<double, 2>, 2>{{{1, 0}, {0, 1}}},
                                    std::array<double, 2>{first, 1}),
        1};
  };
  return {client(10), client(-10)};
}

TEST(TopK, ErrorFeedbackRecoversWhatPlainTopKNeverSends) {
  RoundLoop plain = TopK(Tug(), 0.5, false), feedback = TopK(Tug(), 0.5, true);
  ASSERT_TRUE(plain.Rounds(300).ok());
  EXPECT_EQ(plain.Model(), (Numbers{0, 0})) << "the second number is never the largest";
  ASSERT_TRUE(feedback.Rounds(300).ok());
  // e grows until it is sent, so x comes near to its optimum and swings about it.
  Numbers mean = {0, 0};
  for (int round = 0; round < 300; ++round) {
    ASSERT_TRUE(feedback.Rounds(1).ok());
    for (size_t i = 0; i < 2; ++i) mean[i] += feedback.Model()[i] / 300;
  }
  EXPECT_LT(Distance(mean, {0, 1}), 0.1);
}

TEST(TopK, SendsOrRemembersEverythingAndLosesNothing) {
  RoundLoop loop = TopK(Q4(), 0.5, true);
  const double eta = 0.1;
  Numbers updates = {0, 0};  // Σ p_i Δ_i over all rounds, from the gradients by hand
  for (int round = 0; round < 20; ++round) {
    for (size_t client = 0; client < 4; ++client) {
      const Numbers g = Q4()[client].objective->Gradient(loop.Model());
      for (size_t i = 0; i < 2; ++i) updates[i] -= loop.Share(client) * eta * g[i];
    }
    ASSERT_TRUE(loop.Rounds(1).ok());
    Numbers kept = loop.Model();  // what has arrived, and what clients remember
    for (size_t client = 0; client < 4; ++client) {
      for (size_t i = 0; i < 2; ++i) kept[i] += loop.Share(client) * loop.State(client, 0)[i];
    }
    EXPECT_LT(Distance(kept, updates), 1e-12);
    EXPECT_EQ(loop.metrics().at("numbers_sent"), 4);  // one of two, of each client
    EXPECT_GT(loop.metrics().at("error_norm"), 0);
  }
}

TEST(TopK, OfEverythingIsFedAvgBitForBit) {
  RoundLoop all = TopK(Q4(), 1, false), fedavg(Builtin("fedavg"), Q4(), {.steps = 1});
  ASSERT_TRUE(all.Rounds(10).ok());
  ASSERT_TRUE(fedavg.Rounds(10).ok());
  EXPECT_EQ(all.ModelDigest(), fedavg.ModelDigest());
}

}  // namespace
}  // namespace macaw::algorithms
