#include <algorithm>
#include <optional>
#include <utility>

#include "algorithms/api/vector_math.h"
#include "algorithms/bounded_step.h"
#include "algorithms/builtin.h"
#include "algorithms/mean_delta.h"
#include "core/status.h"

// FedExP: Jhunjhunwala, Wang, Joshi, "FedExP: Speeding Up Federated Averaging via Extrapolation",
// ICLR 2023, algorithm 1. The server's rate is η_g = max(1, Σ‖Δ_i‖²/(2M(‖Δ̄‖² + ε))) over the M
// clients of the round, and the reported model is the mean of the last two iterates. The authors'
// code has M·ε in the place of ε, lets ε decay with the clients' rate, and weighs both means by the
// clients' rows, as cohort.weight does here.

namespace macaw::algorithms {
namespace {

constexpr char kSquare[] = "square";     // ‖Δ_i‖², a buffer: an attack leaves it as it is
constexpr char kRate[] = "server_rate";  // η_g

const LayoutPtr& SquareLayout() {
  static const LayoutPtr& layout = *new LayoutPtr(*ParameterLayout::Make(
      {{.name = kSquare, .shape = {1}, .group = Group::kBuffer}}, DType::kF64));
  return layout;
}

class FedExPClient final : public DeltaClient {
 public:
  using DeltaClient::DeltaClient;

  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    const VectorView delta = Delta(context, outcomes[0].end, workspace);
    const VectorView square = workspace.Vector(SquareLayout());
    square.As<double>()[0] = SquaredNorm(delta);
    return ClientResult{.up = {{"delta", delta}, {kSquare, square}}};
  }
};

class FedExPServer final : public MeanDeltaServer {
 public:
  FedExPServer(const Setup& setup, FlatVector model)
      : MeanDeltaServer(setup, std::move(model)),
        epsilon_(setup.Get<double>("epsilon")),
        bound_(setup.contribution_bound) {
    if (setup.Get<std::string>("evaluate") == "mean")
      mean_ = kept_.Vector("mean", FlatVector::CopyOf(Model(), setup.layout));
  }

  ConstVectorView Result() const override { return mean_ ? ConstVectorView(*mean_) : Model(); }

  absl::StatusOr<AfterApply> Apply(const ServerContext& context,
                                   aggregation::Aggregate aggregate) override {
    const FlatVector& delta = ChannelOf(aggregate, "delta").value;
    if (delta.empty()) return AfterApply::kRoundDone;  // no client contributed: all stays
    // Under EF21 a round that counts no client has a mean, too: of what all have sent last.
    const FlatVector& square = ChannelOf(aggregate, kSquare).value;
    const double mean_square = square.empty() ? 0 : square.As<double>()[0];
    const double below = 2 * (SquaredNorm(delta.view()) + epsilon_);
    extrapolation_ = below > 0 ? std::max(1.0, mean_square / below) : 1;
    context.Report(kRate, extrapolation_);
    if (mean_) Copy(Model(), *mean_);
    MACAW_ASSIGN_OR_RETURN(const AfterApply after,
                           MeanDeltaServer::Apply(context, std::move(aggregate)));
    if (mean_) {  // (x⁺ + x)/2
      Map(
          *mean_, [](auto before, auto x) { return (before + x) / 2; }, Model());
    }
    return after;
  }

 protected:
  void Step(double, ConstVectorView mean_delta, VectorView model) override {
    AddWithin(bound_, extrapolation_, mean_delta, model);
  }

 private:
  const double epsilon_;
  const double bound_;  // of a client's update: what a lie about ‖Δ_i‖² moves a coordinate by
  double extrapolation_ = 1;        // η_g of the round
  std::optional<VectorView> mean_;  // of the last two iterates, where that is what is evaluated
};

absl::StatusOr<Schema> FedExPSchema(const Setup& setup) {
  Schema schema = MeanDeltaSchema(setup);
  // The largest that a Δ within its own bound can have.
  const double most = setup.contribution_bound * setup.contribution_bound *
                      static_cast<double>(std::max<uint64_t>(1, setup.layout->count()));
  schema.up.push_back({.name = kSquare,
                       .layout = SquareLayout(),
                       .reduction = schema.up[0].reduction,
                       .bound = std::clamp(most, 1.0, aggregation::kLargestBound)});
  schema.metrics = {{kRate, std::nullopt}};
  return schema;
}

}  // namespace

Description FedExP() {
  return {
      .name = "fedexp",
      .summary = "FedAvg with a server rate that grows where the clients' updates disagree",
      .paper =
          "Jhunjhunwala et al., 2023, FedExP: Speeding Up Federated Averaging via Extrapolation",
      .formula =
          "client  y ← y − η·g\n"
          "up      Δ = y − x, ‖Δ‖²\n"
          "server  η_g = max(1, mean(‖Δ‖²)/(2·(‖mean(Δ)‖² + ε)))\n"
          "        x ← x + η_g·mean(Δ)\n"
          "result  (x + the x of the round before)/2, as in the paper, or x: evaluate",
      .parameters = {{.name = "epsilon",
                      .default_value = 1e-3,
                      .help = "ε: the larger, the nearer η_g is to 1; the paper tunes it",
                      .minimum = 0},
                     {.name = "evaluate",
                      .default_value = "mean",
                      .help = "what is evaluated and written: mean, of the last two x, as in the "
                              "paper, since x oscillates; or x",
                      .choices = {"mean", "x"}}},
      .remarks =
          "Norms are of the parameters only. Under [update] a client measures its update before "
          "the codec, and under EF21 the mean is of all clients and the squares are of the round's. "
          "The authors' code adds M·ε instead of ε, for M clients of a round, and "
          "multiplies ε by the square of the decay of the local rate: there ε = 1e-3 with 20 "
          "clients is 2e-2 here.",
      .check = NeedsPlannedCohort,
      .schema = FedExPSchema,
      .server = MakeServer<FedExPServer>,
      .client = MakeClient<FedExPClient>,
  };
}

}  // namespace macaw::algorithms
