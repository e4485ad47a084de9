#include <gtest/gtest.h>

#include <cmath>

#include "sdk/testing/round_loop.h"

namespace macaw::algorithms {
namespace {

constexpr size_t kRows = 4, kColumns = 3, kNumbers = kRows * kColumns + 2;

// ½‖w − b‖² for a matrix of 4 × 3 and a bias of 2, with another b for each client.
class Near final : public Objective {
 public:
  explicit Near(uint32_t client) {
    for (size_t i = 0; i < kNumbers; ++i) b_.push_back(std::sin(1.0 + i * i + 7 * client));
  }
  double Loss(const Numbers& w) const override {
    double sum = 0;
    for (size_t i = 0; i < kNumbers; ++i) sum += 0.5 * (w[i] - b_[i]) * (w[i] - b_[i]);
    return sum;
  }
  Numbers Gradient(const Numbers& w) const override {
    Numbers g(kNumbers);
    for (size_t i = 0; i < kNumbers; ++i) g[i] = w[i] - b_[i];
    return g;
  }

 private:
  Numbers b_;
};

std::vector<TestPopulationClient> Population() {
  std::vector<TestPopulationClient> clients;
  for (uint32_t c = 0; c < 4; ++c) clients.push_back({std::make_shared<Near>(c), c + 1});
  return clients;
}

RoundLoop::Options OptionsOf(std::map<std::string, ParameterValue> parameters) {
  return {.steps = 3,
          .parameters = std::move(parameters),
          .start = Numbers(kNumbers),
          .layout = *ParameterLayout::Make(
              {{.name = "weight", .shape = {kRows, kColumns}}, {.name = "bias", .shape = {2}}},
              DType::kF64)};
}

RoundLoop PowerSgd(int64_t rank) {
  const auto rule = OfPlugin(MACAW_PLUGIN_FILE, "powersgd");
  EXPECT_TRUE(rule.ok()) << rule.status();
  return {*rule, Population(), OptionsOf({{"rank", rank}})};
}

TEST(PowerSgd, OfFullRankIsFedAvg) {
  RoundLoop full = PowerSgd(3), fedavg(Builtin("fedavg"), Population(), OptionsOf({}));
  for (int round = 0; round < 10; ++round) {
    ASSERT_TRUE(full.Rounds(1).ok());
    EXPECT_EQ(full.phases(), 2);
    ASSERT_TRUE(fedavg.Rounds(1).ok());
    EXPECT_LT(Distance(full.Model(), fedavg.Model()), 1e-9);
  }
}

TEST(PowerSgd, OfRankOneArrivesWhereFedAvgDoes) {
  RoundLoop one = PowerSgd(1), fedavg(Builtin("fedavg"), Population(), OptionsOf({}));
  ASSERT_TRUE(one.Rounds(1).ok());
  ASSERT_TRUE(fedavg.Rounds(1).ok());
  EXPECT_GT(Distance(one.Model(), fedavg.Model()), 0.01) << "it sends less";
  ASSERT_TRUE(one.Rounds(400).ok());
  ASSERT_TRUE(fedavg.Rounds(400).ok());
  EXPECT_LT(Distance(one.Model(), fedavg.Model()), 1e-3) << "and remembers what it did not send";
}

TEST(PowerSgd, WhatAClientHasNotSentItKeeps) {
  RoundLoop loop = PowerSgd(1);
  Numbers updates(kNumbers);  // Σ p_i Δ_i over all rounds
  for (int round = 0; round < 10; ++round) {
    for (size_t client = 0; client < 4; ++client) {
      Numbers y = loop.Model();
      for (int step = 0; step < 3; ++step) {
        const Numbers g = Population()[client].objective->Gradient(y);
        for (size_t i = 0; i < kNumbers; ++i) y[i] -= 0.1 * g[i];
      }
      for (size_t i = 0; i < kNumbers; ++i)
        updates[i] += loop.Share(client) * (y[i] - loop.Model()[i]);
    }
    ASSERT_TRUE(loop.Rounds(1).ok());
    Numbers kept = loop.Model();
    for (size_t client = 0; client < 4; ++client) {
      for (size_t i = 0; i < kNumbers; ++i)
        kept[i] += loop.Share(client) * loop.State(client, 0)[i];
    }
    EXPECT_LT(Distance(kept, updates), 1e-9);
  }
}

}  // namespace
}  // namespace macaw::algorithms
