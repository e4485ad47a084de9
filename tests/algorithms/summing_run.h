#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "aggregation/exact_sum.h"
#include "algorithms/api/vector_math.h"
#include "algorithms/around/channels.h"
#include "algorithms/around/registry.h"
#include "algorithms/builtin.h"
#include "models/spec.h"
#include "training/api/row_statistics.h"

// Runs of rules that solve for a model from sums over rows, without a server and a trainer.

namespace macaw::algorithms {

using Table = std::vector<std::vector<double>>;

// A client's rows.
struct SummedRows {
  Table x;
  std::vector<int64_t> classes;
  std::vector<double> targets;
};

// A run without a trainer: a client's statistics are added up here.
class SummingRun {
 public:
  SummingRun(const std::string& rule, const std::vector<std::string>& layers, int64_t width,
             int64_t outputs, std::map<std::string, ParameterValue> parameters, TaskKind task) {
    registry_.AddBuiltin(BuiltinAlgorithms());
    setup_.model.name = "layers";
    setup_.model.layers = layers;
    setup_.model.input_shape = {width};
    setup_.model.classes = outputs;
    spec_ = *models::BuildSpec(setup_.model, DType::kF64);
    setup_.layout = spec_.layout;
    setup_.task = task;
    setup_.clients = 5;
    setup_.total_weight = 5;
    setup_.seed = 4;
    setup_.cohort.size = 5;
    setup_.config = *registry_.Complete({rule, std::move(parameters)});
    const Description& description = **registry_.Find(rule);
    schema_ = *MakeSchema(description, setup_);
    client_ = *description.client(setup_);
    server_ = *description.server(setup_, models::InitialModel(spec_, 5));
    for (const NamedLayout& item : schema_.state) zero_.emplace_back(item.layout);
  }

  // All phases. `until`: the first of those in which no client is counted any more.
  absl::Status Round(const std::map<size_t, SummedRows>& clients, Phase until = Phase(UINT8_MAX)) {
    ++round_;
    passed_.clear();
    for (Phase phase(0);; ++phase.value) {
      const absl::StatusOr<AfterApply> after =
          OnePhase(phase, phase.value < until.value ? clients : std::map<size_t, SummedRows>());
      if (!after.ok() || *after == AfterApply::kRoundDone) return after.status();
    }
  }
  // What a client's sums are times: a hostile one's −20.
  std::map<size_t, double> lies;
  // The order in which clients add up; empty: that of their numbers.
  std::vector<size_t> order;
  // What follows in a phase of these sums, whatever clients have sent.
  absl::Status Apply(const std::map<std::string, std::vector<double>>& by_entry,
                     Phase phase = Phase(0)) {
    const aggregation::ChannelSpec spec = UpChannels(schema_, phase).front();
    aggregation::Aggregate aggregate{.clients = 1, .channels = {}};
    aggregation::AggregatedChannel& channel = aggregate.channels.emplace_back();
    channel.name = spec.name;
    channel.value = FlatVector(spec.layout);
    for (const auto& [entry, numbers] : by_entry) {
      const auto at = static_cast<ptrdiff_t>(spec.layout->Find(entry)->offset);
      std::ranges::copy(numbers, channel.value.As<double>().begin() + at);
    }
    if (phase == Phase(0)) ++round_;
    const ServerContext context{.round = macaw::Round(round_),
                                .phase = phase,
                                .seed = setup_.seed,
                                .metrics = &metrics,
                                .schema = &schema_};
    return server_->Apply(context, std::move(aggregate)).status();
  }

  // The model's weights [outputs, width] and biases.
  double Weight(size_t k, size_t i) const { return At(0, k * Width() + i); }
  double Bias(size_t k) const { return At(1, k); }
  // Element i of tensor e.
  double At(size_t e, size_t i) const {
    return server_->Model().As<double>()[spec_.layout->entries()[e].offset + i];
  }
  ServerAlgorithm& server() { return *server_; }
  const models::ModelSpec& spec() const { return spec_; }
  std::map<std::string, double> metrics;
  // The rows over which a client's sums were taken in the last round, in all phases, and what the
  // rule says of it (Description::passes): a pass forth each.
  double Passed(size_t client) const { return passed_.at(client); }
  double SaidToPass(size_t client) const {
    return RowsOfTurnOf(**registry_.Find(setup_.config.name), setup_)(
        {.round = macaw::Round(round_), .local = setup_.local, .rows = rows_.at(client)});
  }

 private:
  absl::StatusOr<AfterApply> OnePhase(Phase phase, const std::map<size_t, SummedRows>& clients) {
    ServerContext context{.round = macaw::Round(round_),
                          .phase = phase,
                          .seed = setup_.seed,
                          .metrics = &metrics,
                          .schema = &schema_};
    aggregation::ExactSum sum = *aggregation::ExactSum::Make(
        UpChannels(schema_, phase), {.max_weight = 1, .total_weight = 5, .total_multiplicity = 5});
    const auto sent = *DownViews(schema_, phase, *server_->Configure(context));
    const std::vector<ConstVectorView> broadcast = ParallelToDown(schema_, phase, sent);
    std::vector<size_t> turns = order;
    if (turns.empty()) {
      for (const auto& [client, rows] : clients) turns.push_back(client);
    }
    for (const size_t client : turns) {
      if (!clients.contains(client)) continue;
      const absl::Status added = AddClient(phase, client, clients.at(client), broadcast, sum);
      if (!added.ok()) return added;
    }
    return server_->Apply(context, *std::move(sum).Report());
  }

  absl::Status AddClient(Phase phase, size_t client, const SummedRows& rows,
                         const std::vector<ConstVectorView>& broadcast,
                         aggregation::ExactSum& sum) {
    workspace_.Reset();
    std::vector<ConstVectorView> state;
    for (const FlatVector& item : states_.contains(client) ? states_[client] : zero_)
      state.push_back(item.view());
    ClientContext context;
    context.round = macaw::Round(round_);
    context.phase = phase;
    context.client = ClientId(client);
    context.broadcast = broadcast;
    context.state = state;
    context.schema = &schema_;
    const training::LocalPlan plan = *client_->Prepare(context, workspace_);
    std::vector<training::StageOutcome> outcomes;
    FlatVector sums;
    for (const training::Stage& stage : plan.stages) {
      EXPECT_EQ(stage.kind, training::StageKind::kStatistics);
      rows_[client] = rows.x.size();
      passed_[client] += kForward * static_cast<double>(rows.x.size());
      sums = FlatVector(stage.statistics->layout());
      Add(*stage.statistics, rows, std::get<ConstVectorView>(stage.start), sums.view());
      outcomes.emplace_back().end = sums.view();
    }
    const ClientResult result = *client_->Conclude(context, outcomes, workspace_);
    auto values = *UpViews(schema_, phase, result, workspace_);
    if (lies.contains(client)) {
      const VectorView lie = workspace_.Vector(UpChannels(schema_, phase).front().layout);
      Copy(values[0], lie);
      Scale(lies.at(client), lie);
      values[0] = lie;
    }
    if (const absl::Status added = sum.Add({.client = ClientId(client), .values = values});
        !added.ok())
      return added;
    const auto next = *StateViews(schema_, state, result);
    if (next.empty()) return absl::OkStatus();
    std::vector<FlatVector> kept;
    for (size_t i = 0; i < next.size(); ++i)
      kept.push_back(FlatVector::CopyOf(next[i], schema_.state[i].layout));
    states_[client] = std::move(kept);
    return absl::OkStatus();
  }

  size_t Width() const { return static_cast<size_t>(spec_.layout->entries()[0].shape[1]); }
  // In two parts, which must not matter.
  static void Add(const training::RowStatistics& statistics, const SummedRows& rows,
                  ConstVectorView at, VectorView sums) {
    const size_t count = rows.x.size();
    for (const auto& part_of : {std::pair<size_t, size_t>(0, count / 2), {count / 2, count}}) {
      const size_t begin = part_of.first, end = part_of.second;  // clang 14 captures no bindings
      std::vector<double> features;
      for (size_t r = begin; r < end; ++r)
        features.insert(features.end(), rows.x[r].begin(), rows.x[r].end());
      const auto part = [&](const auto& labels) {
        return labels.empty()
                   ? labels
                   : std::decay_t<decltype(labels)>(labels.begin() + static_cast<ptrdiff_t>(begin),
                                                    labels.begin() + static_cast<ptrdiff_t>(end));
      };
      const std::vector<int64_t> classes = part(rows.classes);
      const std::vector<double> targets = part(rows.targets);
      statistics.Add({.width = count == 0 ? 0 : rows.x[0].size(),
                      .features = features,
                      .classes = classes,
                      .targets = targets},
                     at, sums);
    }
  }

  Registry registry_;
  Setup setup_;
  models::ModelSpec spec_;
  Schema schema_;
  std::unique_ptr<ClientAlgorithm> client_;
  std::unique_ptr<ServerAlgorithm> server_;
  Workspace workspace_;
  std::vector<FlatVector> zero_;
  std::map<size_t, std::vector<FlatVector>> states_;
  std::map<size_t, uint64_t> rows_;  // by client
  std::map<size_t, double> passed_;
  uint32_t round_ = 0;
};

inline std::string RefusalOfLayers(const std::string& rule,
                                   const std::vector<std::string>& layers) {
  Registry registry;
  registry.AddBuiltin(BuiltinAlgorithms());
  algorithms::Setup setup;
  setup.model.name = "layers";
  setup.model.layers = layers;
  setup.model.input_shape = {1, 2, 2};
  setup.model.classes = 3;
  setup.layout = models::BuildSpec(setup.model, DType::kF32)->layout;
  setup.clients = 5;
  setup.total_weight = 5;
  setup.cohort.size = 5;
  setup.config = *registry.Complete({rule, {}});
  return std::string(MakeSchema(**registry.Find(rule), setup).status().message());
}

}  // namespace macaw::algorithms
