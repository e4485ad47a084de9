#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/api/reported_weight.h"
#include "algorithms/builtin.h"
#include "sdk/testing/round_loop.h"

namespace macaw::algorithms {

using Parameters = std::map<std::string, ParameterValue>;

inline Setup SetupOfRule(const std::string& name, const Parameters& parameters, LayoutPtr layout) {
  Registry registry;
  registry.AddBuiltin(BuiltinAlgorithms());
  Setup setup;
  setup.config = *registry.Complete({name, parameters});
  setup.layout = std::move(layout);
  return setup;
}

// A round of a rule's server half alone, in double.
struct ServerRound {
  std::vector<Numbers> updates = {};  // of the clients 0, 1, …
  std::vector<double> weights = {};   // that they report; empty: the rule does not ask
  uint64_t seed = 1;
  uint32_t round = 1;

  ServerContext Context(const Schema& schema, std::map<std::string, double>& metrics) const {
    return {.round = Round(round), .seed = seed, .metrics = &metrics, .schema = &schema};
  }
  struct Outcome {
    Numbers model;
    std::map<std::string, double> metrics;
  };
  // Of the rule with the model at the origin.
  Outcome Of(const std::string& name, const Parameters& parameters = {}) const {
    const Description rule = Builtin(name);
    const Setup setup =
        SetupOfRule(name, parameters, Plain(static_cast<int64_t>(updates[0].size()), DType::kF64));
    const Schema schema = *rule.schema(setup);
    const auto server = *rule.server(setup, FlatVector(setup.layout));
    aggregation::Aggregate aggregate;
    for (const aggregation::ChannelSpec& channel : schema.up) {
      aggregation::AggregatedChannel& sent = aggregate.channels.emplace_back();
      sent.name = channel.name;
      for (size_t k = 0; k < updates.size(); ++k) {
        FlatVector vector(channel.layout);
        if (channel.name == kWeightChannel) {
          vector.As<double>()[0] = weights[k];
        } else {
          SetNumbers(updates[k], vector.view());
        }
        sent.collected.emplace_back(ClientId(k), std::move(vector));
      }
    }
    Outcome outcome;
    EXPECT_TRUE(server->Apply(Context(schema, outcome.metrics), std::move(aggregate)).ok());
    outcome.model = NumbersOf(server->Model());
    return outcome;
  }
};

}  // namespace macaw::algorithms
