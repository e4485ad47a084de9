// Top-k with error feedback: Stich, Cordonnier, Jaggi, "Sparsified SGD with Memory", NeurIPS 2018,
// algorithm 1, on clients' updates. A client sends the k largest numbers of Δ_i + e_i and keeps the
// rest as its next e_i. It sends them in a dense vector of zeros otherwise.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "algorithms/api/vector_math.h"
#include "algorithms/mean_delta.h"
#include "sdk/plugin.h"

namespace {

using namespace macaw;
using namespace macaw::algorithms;
using aggregation::Reduction;

// Takes all but the k largest |values| out of `v`; of equal ones the first stay.
void KeepLargest(size_t k, VectorView v) {
  DispatchDType(v.dtype(), [&]<typename T>(T) {
    const std::span<T> values = v.As<T>();
    std::vector<uint32_t> order(values.size());
    std::iota(order.begin(), order.end(), 0u);
    const auto larger = [&](uint32_t a, uint32_t b) {
      const T x = std::fabs(values[a]), y = std::fabs(values[b]);
      return x != y ? x > y : a < b;
    };
    k = std::min(k, order.size());
    std::nth_element(order.begin(), order.begin() + static_cast<ptrdiff_t>(k), order.end(), larger);
    for (size_t i = k; i < order.size(); ++i) values[order[i]] = 0;
  });
}

class Client final : public DeltaClient {
 public:
  explicit Client(const Setup& setup)
      : DeltaClient(setup),
        feedback_(setup.Get<bool>("feedback")),
        k_(static_cast<size_t>(std::ceil(setup.Get<double>("fraction") *
                                         static_cast<double>(setup.layout->count())))) {}

  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    const VectorView rest = Delta(context, outcomes[0].end, workspace);
    if (feedback_) Add(context.State("error"), rest);  // Δ_i + e_i
    const VectorView sent = workspace.Vector(layout_);
    Copy(rest, sent);
    KeepLargest(k_, sent);
    Subtract(rest, sent, rest);
    ClientResult result{.up = {{"delta", sent}},
                        .metrics = {{"numbers_sent", static_cast<double>(k_)},
                                    {"error_norm", std::sqrt(SquaredNorm(rest))}}};
    if (feedback_) result.state = {{"error", rest}};
    return result;
  }

 private:
  const bool feedback_;
  const size_t k_;
};

absl::StatusOr<Schema> TopKSchema(const Setup& setup) {
  Schema schema = MeanDeltaSchema(setup);
  if (setup.Get<bool>("feedback")) schema.state = {{"error", setup.layout}};
  schema.metrics = {{"numbers_sent", Reduction::kFixedSum}, {"error_norm", Reduction::kMean}};
  return schema;
}

absl::Status Contribute(sdk::Catalogue& catalogue) {
  Description rule = {
      .name = "topk",
      .summary = "clients send the largest numbers of their updates and remember the rest",
      .paper = "Stich et al., 2018, Sparsified SGD with Memory",
      .parameters = ServerRateParameters(),
      .schema = TopKSchema,
      .server = MakeServer<MeanDeltaServer>,
      .client = MakeClient<Client>,
  };
  rule.parameters.push_back({.name = "fraction",
                             .default_value = 0.01,
                             .help = "k as a fraction of the model's numbers",
                             .minimum = 0,
                             .maximum = 1});
  rule.parameters.push_back({.name = "feedback",
                             .default_value = true,
                             .help = "false: what is not sent is lost, plain top-k"});
  return catalogue.AddAlgorithm(std::move(rule));
}

}  // namespace

MACAW_PLUGIN("topk", "1", Contribute)
