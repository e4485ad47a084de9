// IFCA: Ghosh, Chung, Yin, Ramchandran, "An Efficient Framework for Clustered Federated Learning",
// NeurIPS 2020, algorithm 1, option II (model averaging). The server keeps k models; a client takes
// the one with the lowest loss on its own rows, trains it, and contributes to its mean alone.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "algorithms/api/vector_math.h"
#include "algorithms/kept_state.h"
#include "algorithms/mean_delta.h"
#include "core/status.h"
#include "sdk/plugin.h"

namespace {

using namespace macaw;
using namespace macaw::algorithms;
using aggregation::Reduction;

size_t Clusters(const Setup& setup) { return static_cast<size_t>(setup.Get<int64_t>("clusters")); }
std::string ModelName(size_t j) { return j == 0 ? "model" : absl::StrCat("model", j); }
std::string DeltaName(size_t j) { return absl::StrCat("delta", j); }

class Client final : public DeltaClient {
 public:
  explicit Client(const Setup& setup)
      : DeltaClient(setup), k_(Clusters(setup)), shares_(ShareLayout(k_)) {}
  static LayoutPtr ShareLayout(size_t k) {
    return ParameterLayout::Scalars("share", static_cast<int64_t>(k), DType::kF64);
  }

  absl::StatusOr<training::LocalPlan> Prepare(const ClientContext& context,
                                              Workspace& workspace) const override {
    training::LocalPlan plan;
    for (size_t j = 0; j < k_; ++j) {
      plan.stages.push_back(LocalWork(context, workspace));
      plan.stages[j].kind = training::StageKind::kLoss;
      plan.stages[j].start = context.Down(ModelName(j));
    }
    return plan;
  }

  absl::StatusOr<training::LocalPlan> Continue(const ClientContext& context,
                                               std::span<const training::StageOutcome> outcomes,
                                               Workspace& workspace) const override {
    if (outcomes.size() > k_) return training::LocalPlan();
    training::LocalPlan plan{{LocalWork(context, workspace)}};
    plan.stages[0].start = context.Down(ModelName(Best(outcomes)));
    return plan;
  }

  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    const size_t best = Best(outcomes);
    const VectorView zero = workspace.Vector(layout_), delta = workspace.Vector(layout_);
    Zero(zero);
    Subtract(outcomes.back().end, context.Down(ModelName(best)), delta);
    const VectorView share = workspace.Vector(shares_);  // one-hot
    Zero(share);
    share.As<double>()[best] = 1;
    ClientResult result{.up = {{"share", share}}};
    for (size_t j = 0; j < k_; ++j) {
      result.up.push_back({DeltaName(j), j == best ? delta : zero});
      result.metrics.emplace_back(absl::StrCat("clients", j), j == best ? 1 : 0);
    }
    result.metrics.emplace_back("best_loss", LossOf(outcomes[best]));
    return result;
  }

 private:
  static double LossOf(const training::StageOutcome& outcome) {
    return outcome.sums[1] / outcome.sums[0];
  }
  size_t Best(std::span<const training::StageOutcome> outcomes) const {
    const auto losses = outcomes.first(k_);
    return static_cast<size_t>(std::ranges::min_element(losses, {}, LossOf) - losses.begin());
  }

  const size_t k_;
  const LayoutPtr shares_;
};

class Server final : public ServerAlgorithm {
 public:
  // The models begin apart: all but the first with noise of their own on the initial weights.
  Server(const Setup& setup, FlatVector model) {
    for (size_t j = 0; j < Clusters(setup); ++j) {
      FlatVector start = model.Clone();
      RandomStream random = ServerContext{.seed = setup.seed}.Random(ModelName(j));
      const double spread = j == 0 ? 0 : setup.Get<double>("spread");
      DispatchDType(start.layout()->dtype(), [&]<typename T>(T) {
        for (const LayoutEntry& entry : start.layout()->entries()) {
          if (entry.group != Group::kParameter) continue;
          for (T& x : start.As<T>().subspan(entry.offset, entry.size))
            x += static_cast<T>(spread * random.Normal());
        }
      });
      models_.push_back(kept_.Vector(ModelName(j), std::move(start)));
    }
  }

  absl::StatusOr<Broadcast> Configure(const ServerContext&) const override {
    Broadcast down;
    for (size_t j = 0; j < models_.size(); ++j) down.push_back({ModelName(j), models_[j]});
    return down;
  }

  absl::StatusOr<AfterApply> Apply(const ServerContext&,
                                   aggregation::Aggregate aggregate) override {
    const FlatVector& share = ChannelOf(aggregate, "share").value;
    if (share.empty()) return AfterApply::kRoundDone;
    for (size_t j = 0; j < models_.size(); ++j) {
      // Σ over its clients ÷ all weights, ÷ its share of the weights: the mean over its clients.
      const double part = share.As<double>()[j];
      if (part > 0) Axpy(1 / part, ChannelOf(aggregate, DeltaName(j)).value.view(), models_[j]);
    }
    return AfterApply::kRoundDone;
  }
  ConstVectorView Model() const override { return models_[0]; }
  ServerState Save() const override { return kept_.Save(); }
  absl::Status Load(const ServerState& state) override { return kept_.Load(state); }

 private:
  KeptState kept_;
  std::vector<VectorView> models_;
};

absl::StatusOr<Schema> IfcaSchema(const Setup& setup) {
  Schema schema;
  const Reduction mean = setup.with_replacement() ? Reduction::kMean : Reduction::kWeightedMean;
  schema.up = {{.name = "share",
                .layout = Client::ShareLayout(Clusters(setup)),
                .reduction = mean,
                .bound = 1}};
  schema.metrics = {{"best_loss", mean}};
  for (size_t j = 0; j < Clusters(setup); ++j) {
    schema.down.push_back({ModelName(j), setup.layout});
    schema.up.push_back({.name = DeltaName(j),
                         .layout = setup.layout,
                         .reduction = mean,
                         .bound = setup.contribution_bound});
    schema.metrics.push_back({absl::StrCat("clients", j), Reduction::kFixedSum});
  }
  return schema;
}

absl::Status Contribute(sdk::Catalogue& catalogue) {
  return catalogue.AddAlgorithm({
      .name = "ifca",
      .summary = "k models; a client trains the one with the lowest loss on its rows",
      .paper = "Ghosh et al., 2020, An Efficient Framework for Clustered Federated Learning",
      .parameters = {{.name = "clusters",
                      .default_value = int64_t{2},
                      .help = "k: models",
                      .minimum = 1,
                      .maximum = 100},
                     {.name = "spread",
                      .default_value = 0.1,
                      .help = "deviation between the models' initial weights",
                      .minimum = 0}},
      .remarks = "What is evaluated and written as the result is the first cluster's model.",
      .check = NeedsPlannedCohort,
      .schema = IfcaSchema,
      .server = MakeServer<Server>,
      .client = MakeClient<Client>,
  });
}

}  // namespace

MACAW_PLUGIN("ifca", "1", Contribute)
