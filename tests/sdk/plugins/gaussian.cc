// Gaussian noise on the server: McMahan, Ramage, Talwar, Zhang, "Learning Differentially Private
// Recurrent Language Models", ICLR 2018, algorithm 1 (DP-FedAvg with the estimator f̃_f). Clients
// are drawn by Poisson sampling with q = size/N, a client's update is clipped to C, and the server
// adds N(0, (z·C)²) to the sum before it divides by q·N. The clients are trusted to clip.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "algorithms/api/vector_math.h"
#include "algorithms/mean_delta.h"
#include "core/status.h"
#include "sdk/plugin.h"

namespace {

using namespace macaw;
using namespace macaw::algorithms;

// Rényi divergence of whole order α between the Gaussian mechanism of noise z, sampled with q, with
// and without one client: Mironov, Talwar, Zhang, "Rényi Differential Privacy of the Sampled
// Gaussian Mechanism", 2019: 1/(α−1)·ln Σ_k C(α,k)·(1−q)^(α−k)·q^k·exp((k²−k)/(2z²)).
double Renyi(double q, double z, int order) {
  if (q >= 1) return order / (2 * z * z);
  std::vector<double> logs;
  for (int k = 0; k <= order; ++k) {
    logs.push_back(std::lgamma(order + 1) - std::lgamma(k + 1) - std::lgamma(order - k + 1) +
                   (order - k) * std::log1p(-q) + k * std::log(q) + (k * k - k) / (2 * z * z));
  }
  const double largest = *std::max_element(logs.begin(), logs.end());
  double sum = 0;
  for (const double log : logs) sum += std::exp(log - largest);
  return (largest + std::log(sum)) / (order - 1);
}

// ε after `rounds`, at δ: min over α of rounds·Renyi(α) + ln(1/δ)/(α−1) (Mironov, "Rényi
// Differential Privacy", CSF 2017, proposition 3).
double Epsilon(const std::vector<double>& renyi, double rounds, double delta) {
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < renyi.size(); ++i)
    least = std::min(least, rounds * renyi[i] - std::log(delta) / static_cast<double>(i + 1));
  return least;
}

class Server final : public MeanDeltaServer {
 public:
  Server(const Setup& setup, FlatVector model)
      : MeanDeltaServer(setup, std::move(model)),
        deviation_(setup.Get<double>("noise") * setup.Get<double>("update_clip") /
                   static_cast<double>(setup.cohort.size)),
        delta_(setup.Get<double>("delta")),
        noise_(setup.layout) {
    const double q = static_cast<double>(setup.cohort.size) / static_cast<double>(setup.clients);
    for (int order = 2; order <= 256; ++order)
      renyi_.push_back(Renyi(q, setup.Get<double>("noise"), order));
  }

  absl::StatusOr<AfterApply> Apply(const ServerContext& context,
                                   aggregation::Aggregate aggregate) override {
    DrawNoise(context.Random("noise"));
    context.Report("epsilon", Epsilon(renyi_, context.round.value, delta_));
    return MeanDeltaServer::Apply(context, std::move(aggregate));
  }

 protected:
  // Also called when nobody came, with a mean of zero: that, too, must not show.
  void Step(double server_lr, ConstVectorView mean_delta, VectorView model) override {
    Add(mean_delta, noise_.view());
    MeanDeltaServer::Step(server_lr, noise_.view(), model);
  }

 private:
  void DrawNoise(RandomStream random) {
    DispatchDType(noise_.layout()->dtype(), [&]<typename T>(T) {
      for (const LayoutEntry& entry : noise_.layout()->entries()) {
        std::vector<float> normal(entry.size);
        random.FillNormal(normal);
        const std::span<T> out = noise_.As<T>().subspan(entry.offset, entry.size);
        for (size_t i = 0; i < out.size(); ++i)
          out[i] = static_cast<T>(deviation_) * static_cast<T>(normal[i]);
      }
    });
  }

  const double deviation_;  // of the mean's noise: z·C/(q·N)
  const double delta_;
  std::vector<double> renyi_;  // of the orders 2, 3, …
  FlatVector noise_;
};

absl::StatusOr<Schema> GaussianSchema(const Setup& setup) {
  Schema schema = MeanDeltaSchema(setup);
  schema.metrics = {{"epsilon", std::nullopt}};
  return schema;
}

absl::Status CheckGaussian(const Setup& setup) {
  if (setup.cohort.sampling != "poisson" || setup.cohort.weight != WeightPolicy::kUniform) {
    return absl::InvalidArgumentError(
        "epsilon is of Poisson sampling with equal weights: set cohort.sampling = \"poisson\" and "
        "cohort.weight = \"uniform\"");
  }
  if (setup.Get<double>("update_clip") <= 0 || setup.Get<double>("noise") <= 0)
    return absl::InvalidArgumentError("update_clip and noise must be above 0");
  if (setup.layout->parameter_size() < setup.layout->size()) {
    return absl::InvalidArgumentError(
        "the model has buffers (batch-norm statistics), which update_clip does not bound");
  }
  return absl::OkStatus();
}

absl::Status Contribute(sdk::Catalogue& catalogue) {
  Description rule = {
      .name = "gaussian",
      .summary = "FedAvg with clipped updates and Gaussian noise on their sum; rule_epsilon",
      .paper = "McMahan et al., 2018, Learning Differentially Private Recurrent Language Models",
      .parameters = ServerRateParameters(),
      .check = CheckGaussian,
      .schema = GaussianSchema,
      .server = MakeServer<Server>,
      .client = MakeClient<DeltaClient>,
  };
  rule.parameters.push_back(UpdateClipParameter());
  rule.parameters.push_back({.name = "noise",
                             .default_value = 1.0,
                             .help = "z: deviation of the sum's noise, in units of update_clip",
                             .minimum = 0});
  rule.parameters.push_back({.name = "delta",
                             .default_value = 1e-5,
                             .help = "δ at which rule_epsilon is given",
                             .minimum = 1e-30,
                             .maximum = 0.5});
  return catalogue.AddAlgorithm(std::move(rule));
}

}  // namespace

MACAW_PLUGIN("gaussian", "1", Contribute)
