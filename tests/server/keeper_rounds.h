#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/around/channels.h"
#include "server/model_keeper.h"
#include "tests/server/tiny_run.h"

namespace macaw::server::fixtures {

inline constexpr uint64_t kCohort = 5;
inline constexpr uint64_t kTinyClients = 8;  // of TinyRun

inline PhaseOrder OrderOf(uint32_t round) {
  return {.round = Round(round),
          .grid = {.max_weight = 8,
                   .total_weight = 30,
                   .max_multiplicity = 1,
                   .total_multiplicity = kCohort}};
}

// What a rule needs beside a model of two tensors and no layers.
inline std::map<std::string, ParameterValue> ParametersOf(const std::string& rule) {
  using Parameters = std::map<std::string, ParameterValue>;
  static const auto& parameters = *new std::map<std::string, Parameters>{
      {"fedbn", {{"local", std::string("0.bias")}}},
      {"fedrep", {{"head", std::string("0.bias")}}},
      {"fedper", {{"head", std::string("0.bias")}}},
      {"heterofl", {{"rates", std::string("1")}, {"mask", false}}},
      {"ifca", {{"start", std::string("noise")}}},
      {"fltrust", {{"root", int64_t{3}}}},
      {"geometric_median", {{"weighted", true}}},
      {"norm_bound", {{"weighted", true}, {"bound", 0.5}}},
      {"median", {{"bucket_size", int64_t{2}}}},
  };
  const auto found = parameters.find(rule);
  return found == parameters.end() ? Parameters() : found->second;
}

// The rules that train. tests/system/table_test.cc has the others: sums over rows need a model of
// layers, MOON a layer below the last one, and the pooled rule has one client.
inline std::vector<std::string> TrainedRules() {
  std::vector<std::string> names;
  for (const algorithms::Description* rule : Registry().All()) {
    const bool needs_more = rule->name == "moon" || rule->name == "pooled";
    if (!rule->has_statistics && !needs_more) names.push_back(rule->name);
  }
  return names;
}

// By which words a rule is refused of which no client can be left out; "": it is not.
inline std::string RefusalOf(const std::string& rule) {
  static const auto& refused =
      *new std::map<std::string, std::string>{{"local", "has no common model"},
                                              {"ifca", "has no common model"},
                                              {"mime", "has several phases"},
                                              {"term", "has several phases"}};
  const auto found = refused.find(rule);
  return found == refused.end() ? "" : found->second;
}

// Rounds of a rule, without a server around its keeper. The parameter is the rule's name.
class KeeperRounds : public testing::TestWithParam<std::string> {
 protected:
  KeeperRounds() {
    run_ = TinyRun(2);
    run_.algorithm = *Registry().Complete({GetParam(), ParametersOf(GetParam())});
    run_.contribution_bound = 64;
    run_.cohort.size =
        GetParam() == "fltrust" ? kTinyClients : kCohort;  // its root is in all rounds
    setup_ = algorithms::SetupOf(run_, TinyLayout());
    setup_.model = {};  // only the layout is known
    rule_ = *Registry().Find(GetParam());
    schema_ = *algorithms::SchemaOf(*rule_, setup_);
    channels_ = algorithms::UpChannels(schema_, Phase(0));
  }

  ModelKeeper Keeper(const EvaluationConfig& evaluation = {}) const {
    return *ModelKeeper::Make(*rule_, setup_, TinyModel(), evaluation);
  }

  // Clients k, of weight k + 2. What a client sends depends on the model; on a channel of numbers
  // it sends (k + 1)/8.
  fleet::Part PartOf(const std::vector<uint64_t>& clients, uint32_t round,
                     ConstVectorView model) const {
    fleet::Part part{.round = Round(round)};
    auto sum = *aggregation::ExactSum::Make(channels_, OrderOf(round).grid);
    for (const uint64_t k : clients) {
      const auto weight = static_cast<double>(k + 2);
      const FlatVector delta = TinyDelta(ClientId(k * k), model);
      std::vector<FlatVector> numbers;
      std::vector<ConstVectorView> values;
      for (const aggregation::ChannelSpec& channel : channels_) {
        numbers.emplace_back(channel.layout);
        const bool is_model = channel.layout->digest() == TinyLayout()->digest();
        if (!is_model && channel.layout->dtype() == DType::kF64) {
          const auto all = numbers.back().As<double>();
          std::ranges::fill(all, static_cast<double>(k + 1) / 8);
        }
        values.push_back(is_model ? delta.view() : std::as_const(numbers.back()).view());
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

  RunPlan run_;
  algorithms::Setup setup_;
  const algorithms::Description* rule_ = nullptr;
  algorithms::Schema schema_;
  std::vector<aggregation::ChannelSpec> channels_;
};

}  // namespace macaw::server::fixtures
