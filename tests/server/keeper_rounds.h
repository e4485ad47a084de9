#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/around/channels.h"
#include "server/model_keeper.h"
#include "tests/server/tiny_run.h"

namespace macaw::server::testing_support {

inline constexpr uint64_t kCohort = 5;

inline PhaseOrder OrderOf(uint32_t round) {
  return {.round = Round(round),
          .grid = {.max_weight = 8,
                   .total_weight = 30,
                   .max_multiplicity = 1,
                   .total_multiplicity = kCohort}};
}

// Rounds of a rule, without a server around its keeper. The parameter is the rule's name.
class KeeperRounds : public testing::TestWithParam<const char*> {
 protected:
  KeeperRounds() {
    RunPlan run = TinyRun(2);
    run.algorithm = *Registry().Complete({GetParam(), {}});
    run.contribution_bound = 64;
    run.cohort.size = kCohort;
    setup_ = algorithms::SetupOf(run, TinyLayout());
    rule_ = *Registry().Find(GetParam());
    channels_ = algorithms::UpChannels(*algorithms::SchemaOf(*rule_, setup_), Phase(0));
  }

  ModelKeeper Keeper(const EvaluationConfig& evaluation = {}) const {
    return *ModelKeeper::Make(*rule_, setup_, TinyModel(), evaluation);
  }

  // Clients k, of weight k + 2. What a client sends depends on the model.
  fleet::Part PartOf(const std::vector<uint64_t>& clients, uint32_t round,
                     ConstVectorView model) const {
    fleet::Part part{.round = Round(round)};
    auto sum = *aggregation::ExactSum::Make(channels_, OrderOf(round).grid);
    for (const uint64_t k : clients) {
      const auto weight = static_cast<double>(k + 2);
      const FlatVector delta = TinyDelta(ClientId(k * k), model);
      std::vector<FlatVector> zeros;
      std::vector<ConstVectorView> values;
      for (const aggregation::ChannelSpec& channel : channels_) {
        zeros.emplace_back(channel.layout);
        const bool is_model = channel.layout->digest() == TinyLayout()->digest();
        values.push_back(is_model ? delta.view() : std::as_const(zeros.back()).view());
      }
      EXPECT_TRUE(sum.Add({.client = ClientId(k), .weight = weight, .values = values}).ok());
      part.included.push_back({.attempt = {ClientId(k), {1, k}}, .weight = weight});
    }
    part.sums = fleet::Blob::Of(sum.Encode());
    return part;
  }
  fleet::Part PartOf(const std::vector<uint64_t>& clients, uint32_t round,
                     const ModelKeeper& keeper) const {
    return PartOf(clients, round, keeper.Model());
  }

  using Parts = std::vector<std::vector<uint64_t>>;  // the clients of each
  // A round of these parts, of clients that trained from `model`.
  void Do(ModelKeeper& keeper, uint32_t round, const Parts& parts, ConstVectorView model) const {
    ASSERT_TRUE(keeper.Open(OrderOf(round)).ok());
    for (const std::vector<uint64_t>& part : parts) {
      auto sum = keeper.Decode(PartOf(part, round, model));
      ASSERT_TRUE(sum.ok()) << sum.status();
      ASSERT_TRUE(keeper.Add(*std::move(sum), ClientId(part.front())).ok());
    }
    const auto applied = keeper.Apply(Round(round), Phase(0));
    ASSERT_TRUE(applied.ok()) << applied.status();
    EXPECT_FALSE(*applied);
  }
  // A round of these clients, each with a part of its own or all in one.
  void Do(ModelKeeper& keeper, uint32_t round, const std::vector<uint64_t>& clients,
          bool apart) const {
    Parts parts;
    if (!apart) parts.push_back(clients);
    for (const uint64_t client : clients) {
      if (apart) parts.push_back({client});
    }
    const FlatVector model = FlatVector::CopyOf(keeper.Model(), TinyLayout());
    Do(keeper, round, parts, model.view());
  }

  algorithms::Setup setup_;
  const algorithms::Description* rule_ = nullptr;
  std::vector<aggregation::ChannelSpec> channels_;
};

}  // namespace macaw::server::testing_support
