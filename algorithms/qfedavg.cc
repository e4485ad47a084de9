#include <cmath>
#include <utility>

#include "algorithms/api/vector_math.h"
#include "algorithms/bounded_step.h"
#include "algorithms/builtin.h"
#include "algorithms/mean_delta.h"
#include "core/status.h"

// q-FedAvg: Li, Sanjabi, Beirami, Smith, "Fair Resource Allocation in Federated Learning", ICLR
// 2020, algorithm 2, with L = 1/η. Clients with a larger loss F_k count more. Clients send the
// paper's Δ_k = F_k^q·L(x − y_k) and h_k = q·F_k^(q−1)·‖L(x − y_k)‖² + L·F_k^q, both divided by L,
// which cancels in their quotient. The paper draws clients in proportion to p_k and takes the plain
// mean over the cohort.

namespace macaw::algorithms {
namespace {

LayoutPtr HLayout() { return ParameterLayout::Scalars("h", 1, DType::kF64); }

class QFedAvgClient final : public DeltaClient {
 public:
  explicit QFedAvgClient(const Setup& setup)
      : DeltaClient(setup), q_(setup.Get<double>("q")), number_(HLayout()) {}

  absl::StatusOr<training::LocalPlan> Prepare(const ClientContext& context,
                                              Workspace& workspace) const override {
    return training::LocalPlan{{LocalWork(context, workspace), LossAtStart(context, workspace)}};
  }

  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    const VectorView delta = Delta(context, outcomes[0].end, workspace);
    const training::MetricSums& sums = outcomes[1].sums;
    const double f = sums[1] / sums[0] + 1e-10;  // 0^(q−1) is infinite for q < 1
    // At a rate of 0 no client moves, and L·‖x − y_k‖² is 0.
    const double l = context.local.lr > 0 ? 1 / context.local.lr : 0;
    const VectorView h = workspace.Vector(number_);
    h.As<double>()[0] = q_ * std::pow(f, q_ - 1) * l * SquaredNorm(delta) + std::pow(f, q_);
    ScaleParameters(std::pow(f, q_), delta);
    return ClientResult{.up = {{"delta", delta}, {"h", h}}};
  }

 private:
  const double q_;
  const LayoutPtr number_;
};

class QFedAvgServer final : public MeanDeltaServer {
 public:
  QFedAvgServer(const Setup& setup, FlatVector model)
      : MeanDeltaServer(setup, std::move(model)), bound_(setup.contribution_bound) {}

  absl::StatusOr<AfterApply> Apply(const ServerContext& context,
                                   aggregation::Aggregate aggregate) override {
    const FlatVector& h = ChannelOf(aggregate, "h").value;
    h_ = h.empty() ? 1 : h.As<double>()[0];
    return MeanDeltaServer::Apply(context, std::move(aggregate));
  }

 protected:
  void Step(double server_lr, ConstVectorView mean_delta, VectorView model) override {
    if (h_ == 0) return;  // every F_k^q is below the smallest number, and so is Δ_k
    AddWithin(server_lr * bound_, server_lr / h_, mean_delta, model);  // x −= ΣΔ_k/Σh_k
  }

 private:
  const double bound_;  // of an update: what a lie about h_k moves a coordinate by at most
  double h_ = 1;        // mean of h_k
};

absl::StatusOr<Schema> QFedAvgSchema(const Setup& setup) {
  Schema schema = MeanDeltaSchema(setup);
  schema.up[0].reduction = aggregation::Reduction::kMean;
  schema.up.push_back({.name = "h",
                       .layout = HLayout(),
                       .reduction = aggregation::Reduction::kMean,
                       .bound = 0x1p60});
  return schema;
}

absl::Status CheckQFedAvg(const Setup& setup) {
  MACAW_RETURN_IF_ERROR(NeedsSgd(setup));  // L = 1/η requires plain steps
  return NeedsPlannedCohort(setup);
}

}  // namespace

Description QFedAvg() {
  Description qfedavg = {
      .name = "qfedavg",
      .summary = "clients with a larger loss weigh more: q trades mean accuracy for evenness",
      .paper = "Li et al., 2020, Fair Resource Allocation in Federated Learning",
      .formula =
          "client  F = f_i(x) + 1e-10, before training; y ← y − η·g\n"
          "up      Δ = F^q·(y − x)\n"
          "        h = q·F^(q−1)·‖y − x‖²/η + F^q\n"
          "server  x ← x + η_g·(plain mean of Δ)/(plain mean of h)",
      .parameters = ServerRateParameters(),
      .remarks =
          "Under EF21 with drawn cohorts the mean of Δ is of all clients, of updates of several "
          "rounds, and the mean of h is of the round's.",
      .notes =
          [](const Setup& setup) {
            return PlainMeanNote(setup, "set cohort.weight = \"uniform\" for both");
          },
      .passes = [](const Setup&) { return Passes(1, kForward); },
      .check = CheckQFedAvg,
      .schema = QFedAvgSchema,
      .server = MakeServer<QFedAvgServer>,
      .client = MakeClient<QFedAvgClient>,
  };
  qfedavg.parameters.push_back(
      {.name = "q",
       .default_value = 1.0,
       .help =
           "q: 0 is the plain mean, more is fairer; F_k^q·Δ has to stay in run.contribution_bound",
       .minimum = 0});
  return qfedavg;
}

}  // namespace macaw::algorithms
