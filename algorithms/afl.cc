#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "algorithms/api/vector_math.h"
#include "algorithms/builtin.h"
#include "algorithms/mean_delta.h"
#include "core/status.h"

// AFL: Mohri, Sivek, Suresh, "Agnostic Federated Learning", ICML 2019: min over x, max over the
// mixtures λ of the clients' losses, Σ λ_i f_i(x), where λ is any point of the simplex. Stochastic-
// AFL (figure 3) steps x down and λ up, both by gradients at the same (x, λ), and projects λ. The
// gradient of λ_i is f_i(x), that of x is Σ λ_i ∇f_i(x). Where a part S of the N clients takes
// part, both are estimated by N/|S| times the part's: without bias for a uniform cohort. One local
// step is the paper's; its result is the mean of all iterates, w_1 … w_T, without the first point.

namespace macaw::algorithms {
namespace {

constexpr char kMixture[] = "mixture";  // λ, by client
constexpr char kLoss[] = "loss";        // f_i(x)
constexpr char kWorst[] = "largest_weight";

LayoutPtr MixtureLayoutOf(const Setup& setup) {
  return ParameterLayout::Scalars(kMixture, static_cast<int64_t>(setup.clients), DType::kF64);
}

const LayoutPtr& LossLayout() {
  static const LayoutPtr& layout = *new LayoutPtr(*ParameterLayout::Make(
      {{.name = kLoss, .shape = {1}, .group = Group::kBuffer}}, DType::kF64));
  return layout;
}

// The nearest point of {λ ≥ 0, Σλ = 1} (Duchi, Shalev-Shwartz, Singer, Chandra, "Efficient
// Projections onto the ℓ1-Ball", ICML 2008, figure 1).
void ProjectOntoSimplex(std::span<double> lambda) {
  std::vector<double> sorted(lambda.begin(), lambda.end());
  std::ranges::sort(sorted, std::greater());
  double sum = 0, threshold = 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    sum += sorted[i];
    const double candidate = (sum - 1) / static_cast<double>(i + 1);
    if (sorted[i] <= candidate) break;
    threshold = candidate;
  }
  for (double& value : lambda) value = std::max(0.0, value - threshold);
}

class AflClient final : public DeltaClient {
 public:
  explicit AflClient(const Setup& setup)
      : DeltaClient(setup), clients_(static_cast<double>(setup.clients)) {}

  absl::StatusOr<training::LocalPlan> Prepare(const ClientContext& context,
                                              Workspace& workspace) const override {
    return training::LocalPlan{{LocalWork(context, workspace), LossAtStart(context, workspace)}};
  }

  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    const std::span<const double> lambda = context.Down(kMixture).As<double>();
    if (context.client.value >= static_cast<uint64_t>(clients_)) {
      return absl::InvalidArgumentError(absl::StrCat("client ", context.client.value,
                                                     " has no weight: the mixture is of ", clients_,
                                                     " clients, numbered from 0"));
    }
    const VectorView delta = Delta(context, outcomes[0].end, workspace);
    ScaleParameters(clients_ * lambda[context.client.value], delta);
    const VectorView loss = workspace.Vector(LossLayout());
    loss.As<double>()[0] = outcomes[1].sums[1] / outcomes[1].sums[0];
    return ClientResult{.up = {{"delta", delta}, {kLoss, loss}}};
  }

 private:
  const double clients_;  // N
};

class AflServer final : public MeanDeltaServer {
 public:
  AflServer(const Setup& setup, FlatVector model)
      : MeanDeltaServer(setup, std::move(model)),
        rate_(setup.Get<double>("mixture_lr")),
        clients_(setup.clients),
        mixture_(kept_.Vector(kMixture, FlatVector(MixtureLayoutOf(setup)))) {
    Fill(1 / static_cast<double>(clients_), mixture_);
    if (setup.Get<std::string>("evaluate") == "mean") {
      mean_ = kept_.Vector("mean", FlatVector::CopyOf(Model(), setup.layout));
      iterates_ = &kept_.Number("iterates", 0);
    }
  }

  absl::StatusOr<Broadcast> Configure(const ServerContext&) const override {
    return Broadcast{{"model", Model()}, {kMixture, mixture_}};
  }

  ConstVectorView Result() const override { return mean_ ? ConstVectorView(*mean_) : Model(); }

  absl::StatusOr<AfterApply> Apply(const ServerContext& context,
                                   aggregation::Aggregate aggregate) override {
    if (aggregate.clients == 0) return AfterApply::kRoundDone;
    const double factor = static_cast<double>(clients_) / static_cast<double>(aggregate.clients);
    const std::span<double> lambda = mixture_.As<double>().first(clients_);
    for (const auto& [client, loss] : ChannelOf(aggregate, kLoss).collected)
      if (client.value < clients_) lambda[client.value] += rate_ * factor * loss.As<double>()[0];
    ProjectOntoSimplex(lambda);
    context.Report(kWorst, *std::ranges::max_element(lambda));
    MACAW_ASSIGN_OR_RETURN(const AfterApply after,
                           MeanDeltaServer::Apply(context, std::move(aggregate)));
    if (mean_ && ++*iterates_ == 1) {
      Copy(Model(), *mean_);
    } else if (mean_) {
      const double share = 1 / *iterates_;
      const auto blend = [share]<typename T>(T mean, T x) {
        return mean + static_cast<T>(share) * (x - mean);
      };
      Map(*mean_, blend, Model());
    }
    return after;
  }

 private:
  const double rate_;  // γ_λ
  const uint64_t clients_;
  VectorView mixture_;
  std::optional<VectorView> mean_;  // of the iterates so far, where that is what is evaluated
  double* iterates_ = nullptr;
};

absl::StatusOr<Schema> AflSchema(const Setup& setup) {
  Schema schema = MeanDeltaSchema(setup);
  schema.up[0].reduction = aggregation::Reduction::kMean;
  schema.up.push_back({.name = kLoss,
                       .layout = LossLayout(),
                       .reduction = aggregation::Reduction::kCollect,
                       .bound = 0x1p40});
  schema.down.push_back({kMixture, MixtureLayoutOf(setup)});
  schema.metrics = {{.name = kWorst, .reduction = std::nullopt}};
  return schema;
}

absl::Status CheckAfl(const Setup& setup) {
  if (setup.cohort.sampling != "uniform") {
    return absl::InvalidArgumentError(
        absl::StrCat("cohort.sampling = \"", setup.cohort.sampling,
                     "\": N/|S| times a cohort's gradient has no bias if all clients are drawn "
                     "alike; use \"uniform\""));
  }
  return absl::OkStatus();
}

}  // namespace

Description Afl() {
  Description afl = {
      .name = "afl",
      .summary = "AFL: the model that is best for the worst mixture of the clients",
      .paper = "Mohri et al., 2019, Agnostic Federated Learning",
      .formula =
          "client  y ← y − η·g; one step in the paper\n"
          "up      N·λ_i·(y − x), f_i(x)               N: all clients\n"
          "server  x ← x + η_g·(plain mean of N·λ_i·(y − x))\n"
          "        λ_i ← λ_i + γ·N/|S|·f_i(x) for the clients S of the round; λ: all of them\n"
          "        λ ← the nearest point with λ ≥ 0 and Σλ = 1\n"
          "result  the mean of the x after each round, as in the paper, or x: evaluate",
      .parameters = ServerRateParameters(),
      .remarks =
          "The clients are the paper's domains. They are numbered from 0, and the server sends all "
          "weights λ to all, 8 bytes a client. It is for a few clients of which most take part: "
          "with many, weights far above 1/N make N·λ_i·Δ long (run.contribution_bound). f_i is over "
          "all rows of the client, where the paper draws rows. Rows do not count: within a client "
          "they are alike, and between clients λ decides.",
      .totals = [](const Setup&) { return TotalsUsed{.clients = true}; },
      .passes = [](const Setup&) { return Passes(1, kForward); },
      .numbers_clients = true,
      .check = CheckAfl,
      .schema = AflSchema,
      .server = MakeServer<AflServer>,
      .client = MakeClient<AflClient>,
  };
  afl.parameters.push_back({.name = "mixture_lr",
                            .default_value = 0.01,
                            .help = "γ: rate of the step of λ; 0 is the plain mean of the clients",
                            .minimum = 0});
  afl.parameters.push_back({.name = "evaluate",
                            .default_value = "mean",
                            .help = "what is evaluated and written: mean, of the x after each "
                                    "round, as in the paper; or x",
                            .choices = {"mean", "x"}});
  return afl;
}

}  // namespace macaw::algorithms
