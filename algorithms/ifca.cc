#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "algorithms/api/vector_math.h"
#include "algorithms/builtin.h"
#include "algorithms/kept_state.h"
#include "algorithms/mean_delta.h"
#include "core/status.h"
#include "training/api/losses.h"

// IFCA: Ghosh, Chung, Yin, Ramchandran, "An Efficient Framework for Clustered Federated Learning",
// NeurIPS 2020, algorithm 1 with model averaging. The server keeps k models θ_1 … θ_k. A client
// takes the one of the least loss on its own rows, ĵ = argmin_j f_i(θ_j), trains it, and counts for
// its mean alone:
//   θ_j ← Σ_i s_ij·y_i / Σ_i s_ij, s_ij = 1 where ĵ_i = j.
// All k updates of a client travel, k − 1 of them zero, and beside them s_i, so that the sums do
// not say who chose what. The mean of a cluster is its sum ÷ its part of the weights.

namespace macaw::algorithms {
namespace {

using aggregation::Reduction;

constexpr char kShare[] = "share";         // s_i
constexpr char kBestLoss[] = "best_loss";  // f_i(θ_ĵ)
// Less than one example among those of any cohort: no honest client has it, and dividing by less
// would overflow.
constexpr double kLeastShare = 1e-20;
constexpr char kPermuted[] = "permuted", kNoise[] = "noise";

size_t Clusters(const Setup& setup) { return static_cast<size_t>(setup.Get<int64_t>("clusters")); }
std::string ModelName(size_t j) { return j == 0 ? "model" : absl::StrCat("model", j); }
std::string DeltaName(size_t j) { return j == 0 ? "delta" : absl::StrCat("delta", j); }
std::string CountName(size_t j) { return absl::StrCat("clients", j); }

// A buffer: an attack leaves it as it is.
LayoutPtr ShareLayout(size_t k) {
  return *ParameterLayout::Make(
      {{.name = kShare, .shape = {static_cast<int64_t>(k)}, .group = Group::kBuffer}}, DType::kF64);
}

double LossOf(const training::StageOutcome& outcome) { return outcome.sums[1] / outcome.sums[0]; }

class IfcaClient final : public DeltaClient {
 public:
  explicit IfcaClient(const Setup& setup)
      : DeltaClient(setup), k_(Clusters(setup)), shares_(ShareLayout(k_)) {}

  // With one model there is nothing to choose, and the work is FedAvg's.
  absl::StatusOr<training::LocalPlan> Prepare(const ClientContext& context,
                                              Workspace& workspace) const override {
    if (k_ == 1) return DeltaClient::Prepare(context, workspace);
    training::LocalPlan plan;
    for (size_t j = 0; j < k_; ++j) {
      plan.stages.push_back(LossAtStart(context, workspace));
      plan.stages.back().start = context.Down(ModelName(j));
    }
    return plan;
  }

  absl::StatusOr<training::LocalPlan> Continue(const ClientContext& context,
                                               std::span<const training::StageOutcome> outcomes,
                                               Workspace& workspace) const override {
    if (k_ == 1 || outcomes.size() > k_) return training::LocalPlan();
    training::Stage work = LocalWork(context, workspace);
    work.start = context.Down(ModelName(Best(outcomes)));
    return training::LocalPlan{{work}};
  }

  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    const size_t best = Best(outcomes);
    const VectorView share = workspace.Vector(shares_);
    Zero(share);
    share.As<double>()[best] = 1;
    const VectorView nothing = workspace.Vector(layout_);
    if (k_ > 1) Zero(nothing);
    ClientResult result{.up = {{kShare, share}}};
    for (size_t j = 0; j < k_; ++j) {
      if (j == best) {
        result.up.push_back(
            {DeltaName(j), Displacement(outcomes.back().end, context.Down(ModelName(j)))});
      } else {
        result.up.push_back({DeltaName(j), nothing});
      }
      result.metrics.emplace_back(CountName(j), j == best ? 1 : 0);
    }
    if (k_ > 1) result.metrics.emplace_back(kBestLoss, LossOf(outcomes[best]));
    return result;
  }

 private:
  // ĵ, the first of equal losses. No client takes a model that has diverged.
  size_t Best(std::span<const training::StageOutcome> outcomes) const {
    if (k_ == 1) return 0;
    return training::LeastLoss(outcomes.first(k_));
  }

  const size_t k_;
  const LayoutPtr shares_;
};

// A model that begins apart from `model`, by the stream of its name.
FlatVector StartOf(const Setup& setup, const FlatVector& model, size_t j) {
  FlatVector start = model.Clone();
  RandomStream random = ServerContext{.seed = setup.seed}.Random(ModelName(j));
  const bool permuted = setup.Get<std::string>("start") == kPermuted;
  const double spread = permuted ? 0 : setup.Get<double>("spread");
  DispatchDType(start.layout()->dtype(), [&]<typename T>(T) {
    for (const LayoutEntry& entry : start.layout()->entries()) {
      if (entry.group != Group::kParameter) continue;
      const std::span<T> tensor = start.As<T>().subspan(entry.offset, entry.size);
      if (permuted) random.Shuffle(tensor);
      for (T& x : tensor) x += static_cast<T>(spread == 0 ? 0 : spread * random.Normal());
    }
  });
  return start;
}

class IfcaServer final : public ServerAlgorithm {
 public:
  IfcaServer(const Setup& setup, FlatVector model)
      : rate_(setup), bound_(setup.contribution_bound), layout_(setup.layout) {
    for (size_t j = 1; j < Clusters(setup); ++j)
      models_.push_back(kept_.Vector(ModelName(j), StartOf(setup, model, j)));
    models_.insert(models_.begin(), kept_.Vector(ModelName(0), std::move(model)));
  }

  absl::StatusOr<Broadcast> Configure(const ServerContext&) const override {
    Broadcast down;
    for (size_t j = 0; j < models_.size(); ++j) down.push_back({ModelName(j), models_[j]});
    return down;
  }

  absl::StatusOr<AfterApply> Apply(const ServerContext& context,
                                   aggregation::Aggregate aggregate) override {
    const FlatVector& share = ChannelOf(aggregate, kShare).value;
    if (share.empty()) return AfterApply::kRoundDone;  // no client came
    for (size_t j = 0; j < models_.size(); ++j) {
      const double part = share.As<double>()[j];
      if (part < kLeastShare) continue;  // no client took this model: it stays
      const VectorView mean = ChannelOf(aggregate, DeltaName(j)).value.view();
      Scale(1 / part, mean);
      Clamp(bound_, mean);  // a client that lies about its share moves a model no farther
      Move(rate_.At(context.round), mean, models_[j]);
    }
    return AfterApply::kRoundDone;
  }

  ConstVectorView Model() const override { return models_[0]; }
  std::vector<ConstVectorView> MoreModels() const override {
    return {models_.begin() + 1, models_.end()};
  }
  ServerState Save() const override { return kept_.Save(); }
  absl::Status Load(const ServerState& state) override { return kept_.Load(state); }

 private:
  // θ_j ← θ_j + η_g·Δ̄; batch norm's statistics take the mean itself.
  void Move(double rate, ConstVectorView mean, VectorView model) const {
    if (model.layout->parameter_size() == model.layout->size()) return Axpy(rate, mean, model);
    const FlatVector before = FlatVector::CopyOf(model, layout_);
    Axpy(rate, mean, model);
    CopyBuffers(before.view(), model);
    AddBuffers(mean, model);
  }

  const ServerRate rate_;
  const double bound_;  // of each number of an update, and so of their mean
  const LayoutPtr layout_;
  KeptState kept_;
  std::vector<VectorView> models_;  // θ_j
};

absl::StatusOr<Schema> IfcaSchema(const Setup& setup) {
  const size_t k = Clusters(setup);
  const Reduction mean = setup.with_replacement() ? Reduction::kMean : Reduction::kWeightedMean;
  Schema schema;
  schema.up = {{.name = kShare, .layout = ShareLayout(k), .reduction = mean, .bound = 1}};
  for (size_t j = 0; j < k; ++j) {
    schema.down.push_back({ModelName(j), setup.layout});
    schema.up.push_back({.name = DeltaName(j),
                         .layout = setup.layout,
                         .reduction = mean,
                         .bound = setup.contribution_bound});
    schema.metrics.push_back({CountName(j), Reduction::kFixedSum});
    if (j > 0) schema.models.push_back(ModelName(j));
  }
  if (k > 1) schema.metrics.push_back({kBestLoss, mean});
  return schema;
}

absl::StatusOr<std::unique_ptr<ServerAlgorithm>> MakeIfcaServer(const Setup& setup,
                                                                FlatVector model) {
  for (size_t j = 1; j < Clusters(setup); ++j) {
    const FlatVector start = StartOf(setup, model, j);
    if (!std::ranges::equal(start.view().bytes, model.view().bytes)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "algorithm.ifca.start = \"", setup.Get<std::string>("start"), "\": model ", j,
        " would begin equal to the first one, so no client would ever take it; use start = "
        "\"noise\" with a spread above 0"));
  }
  return std::make_unique<IfcaServer>(setup, std::move(model));
}

}  // namespace

Description Ifca() {
  Description ifca = {
      .name = "ifca",
      .summary = "IFCA: k models; a client trains the one with the least loss on its rows",
      .paper = "Ghosh et al., 2020, An Efficient Framework for Clustered Federated Learning",
      .formula =
          "down    x_1 … x_k\n"
          "client  j = the one with the least f_i(x_j), the first of equals\n"
          "        y starts as x_j; y ← y − η·g\n"
          "up      y − x_j, for model j alone\n"
          "server  x_j ← x_j + η_g·(mean of y − x_j over the clients that took j)\n"
          "        a model that nobody took stays\n"
          "tested  each client at the model that it would take now",
      .parameters = ServerRateParameters(),
      .remarks =
          "For clients of a few kinds that want different models. Ask for evaluation.clients: there "
          "is no common model for the central test set. A client passes over its rows once for each "
          "model, in training and in evaluation, and gets k models and sends k updates, k − 1 of "
          "them zeros, which take next to nothing. rule_clientsJ says how many took model J. Like "
          "k-means it may end in a poor division: if one model takes all, try another run.seed. "
          "model.safetensors is model 0, and models/ has all of them.",
      .has_personal_models = true,
      .has_common_model = false,
      .has_several_models = true,
      .passes =
          [](const Setup& setup) {
            const auto k = static_cast<double>(Clusters(setup));
            return Passes(1, k > 1 ? k * kForward : 0);
          },
      .check = NeedsPlannedCohort,
      .schema = IfcaSchema,
      .server = MakeIfcaServer,
      .client = MakeClient<IfcaClient>,
  };
  ifca.parameters.push_back({.name = "clusters",
                             .default_value = int64_t{2},
                             .help = "k: models",
                             .minimum = 1,
                             .maximum = 100});
  ifca.parameters.push_back(
      {.name = "start",
       .default_value = kPermuted,
       .help = "how models 1 … k − 1 begin: permuted, each tensor of the initial model in another "
               "order, as if drawn again; noise, the initial model with normal noise, for one that "
               "has been trained",
       .choices = {kPermuted, kNoise}});
  ifca.parameters.push_back({.name = "spread",
                             .default_value = 0.1,
                             .help = "deviation of the noise",
                             .minimum = 0,
                             .needs = {{[](const AlgorithmConfig& config) {
                                          const auto start = config.parameters.find("start");
                                          return start != config.parameters.end() &&
                                                 start->second == ParameterValue(kNoise);
                                        },
                                        "algorithm.ifca.start = \"noise\""}}});
  return ifca;
}

}  // namespace macaw::algorithms
