#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "algorithms/api/vector_math.h"
#include "algorithms/builtin.h"
#include "algorithms/robust/robust.h"

// FLTrust: Cao, Fang, Liu, Gong, "FLTrust: Byzantine-robust Federated Learning via Trust
// Bootstrapping", NDSS 2021, algorithm 2. The server's root dataset is the rows of one client, the
// root, which trains in each round like all others.

namespace macaw::algorithms {
namespace {

constexpr char kTrusted[] = "trusted";  // clients with a trust score above 0

ClientId RootOf(const Setup& setup) {
  return ClientId(static_cast<uint64_t>(setup.Get<int64_t>("root")));
}

// Δ̄ = Σ TS_k·(‖Δ_0‖/‖Δ_k‖)·Δ_k / Σ TS_k, TS_k = max(0, cos(Δ_k, Δ_0)), over all but the root.
class FlTrustServer final : public RobustServer {
 public:
  FlTrustServer(const Setup& setup, FlatVector model)
      : RobustServer(setup, std::move(model)), root_(RootOf(setup)) {}

 protected:
  FlatVector Combine(const ServerContext& context, const Arrived& arrived) override {
    const Updates& updates = arrived.updates;
    const auto root = std::ranges::lower_bound(updates, root_, {}, &Updates::value_type::first);
    const bool came = root != updates.end() && root->first == root_;
    const double length = came ? std::sqrt(SquaredNorm(root->second.view())) : 0;
    std::vector<double> scores(updates.size()), norms(updates.size());
    double total = 0, trusted = 0;
    for (size_t k = 0; k < updates.size() && length > 0; ++k) {
      const ConstVectorView update = updates[k].second.view();
      norms[k] = std::sqrt(SquaredNorm(update));
      if (updates[k].first == root_ || norms[k] == 0) continue;
      scores[k] = std::max(0.0, ParameterDot(update, root->second.view()) / (norms[k] * length));
      total += scores[k];
      if (scores[k] > 0) ++trusted;
    }
    context.Report(kTrusted, trusted);
    if (total == 0) return {};
    FlatVector mean(root->second.layout());
    for (size_t k = 0; k < updates.size(); ++k) {
      if (scores[k] == 0) continue;
      Axpy(scores[k] / total * (length / norms[k]), updates[k].second.view(), mean.view());
    }
    CopyBuffers(root->second.view(), mean.view());  // only the root's can be believed
    return mean;
  }

 private:
  const ClientId root_;
};

absl::Status CheckFlTrust(const Setup& setup) {
  const CohortConfig& cohort = setup.cohort;
  const uint64_t root = RootOf(setup).value;
  const auto refuse = [](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the server's own update is that of the root client in the same round, and ", why...));
  };
  if (setup.clients == 0) return refuse("run.clients is not set");
  if (cohort.sampling != "uniform" || cohort.size < setup.clients) {
    return refuse("cohort.sampling = \"", cohort.sampling, "\" with cohort.size = ", cohort.size,
                  " of ", setup.clients,
                  " clients leaves it out of most rounds: use \"uniform\" and all clients");
  }
  if (cohort.straggler_policy == "drop" && cohort.straggler_fraction > 0)
    return refuse("cohort.straggler_policy = \"drop\" leaves it out of some rounds");
  if (root >= setup.clients) {
    return absl::InvalidArgumentError(
        absl::StrCat("root = ", root, ", and ", setup.clients,
                     " clients train: name one with a smaller number that has training rows"));
  }
  return absl::OkStatus();
}

}  // namespace

Description FlTrust() {
  Description rule = Robust(
      "fltrust", "updates that agree with the server's own one, scaled to its norm",
      "Cao et al., 2021, FLTrust: Byzantine-robust Federated Learning via Trust Bootstrapping");
  rule.parameters.push_back(
      {.name = "root",
       .default_value = int64_t{0},
       .help = "number of the client whose rows are the server's root dataset",
       .minimum = 0,
       .maximum = 1e12});
  rule.check = CheckFlTrust;
  rule.needs = [](const Setup&) -> Needed {
    return {.clients = 2, .why = "the root and another one"};
  };
  rule.trusts = [](const Setup& setup) -> Trusted {
    return {.client = RootOf(setup), .key = "algorithm.fltrust.root"};
  };
  rule.schema = [inner = rule.schema](const Setup& setup) -> absl::StatusOr<Schema> {
    absl::StatusOr<Schema> schema = inner(setup);
    if (schema.ok()) schema->metrics.push_back({.name = kTrusted, .reduction = std::nullopt});
    return schema;
  };
  rule.remarks =
      "The root stands for the server: it must be honest, trains in each round with the others' "
      "local work, and its update is not part of the mean. So all clients take part in each round. "
      "It withstands any number of hostile clients as far as the root's rows are like the honest "
      "clients' together. Where the root's update has not come or no update agrees with it, the "
      "model stays; the metric `trusted` counts those that agree.";
  rule.formula =
      "client  y ← y − η·g\n"
      "up      Δ_k = y − x      Δ_0: the root's\n"
      "server  TS_k = max(0, cos(Δ_k, Δ_0))\n"
      "        x ← x + η_g·Σ TS_k·(‖Δ_0‖/‖Δ_k‖)·Δ_k/Σ TS_k      over all k but the root";
  rule.server = MakeServer<FlTrustServer>;
  return rule;
}

}  // namespace macaw::algorithms
