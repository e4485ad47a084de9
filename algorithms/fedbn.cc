#include <utility>

#include "absl/strings/str_cat.h"
#include "algorithms/builtin.h"
#include "algorithms/local_group.h"

// FedBN: Li, Jiang, Zhang, Kamp, Dou, "FedBN: Federated Learning on Non-IID Features via Local
// Batch Normalization", ICLR 2021, algorithm 1: FedAvg on everything but the batch-norm layers,
// whose weights and statistics stay with the client.

namespace macaw::algorithms {
namespace {

ParameterGroup LocalGroup(const Setup& setup) {
  const std::string globs = setup.Get<std::string>("local");
  return globs.empty() ? ParameterGroup::OfNormLayers(setup.layout)
                       : ParameterGroup::Matching(setup.layout, globs);
}

class FedBnClient final : public LocalGroupClient {
 public:
  explicit FedBnClient(const Setup& setup) : LocalGroupClient(setup, LocalGroup(setup)) {}
};

absl::Status CheckFedBn(const Setup& setup) {
  const ParameterGroup group = LocalGroup(setup);
  const std::string globs = setup.Get<std::string>("local");
  if (group.empty()) {
    return absl::InvalidArgumentError(
        globs.empty()
            ? "the model has no batch-norm layers, so nothing would stay local: use "
              "fedavg, or name tensors with local = \"…\""
            : absl::StrCat("local = \"", globs, "\" matches none of the model's tensors"));
  }
  if (group.everything())
    return absl::InvalidArgumentError("every tensor would stay local: nothing would be shared");
  return absl::OkStatus();
}

}  // namespace

Description FedBn() {
  Description fedbn = LikeFedAvg();
  fedbn.name = "fedbn";
  fedbn.summary = "FedAvg, but batch-norm layers stay with each client";
  fedbn.paper =
      "Li et al., 2021, FedBN: Federated Learning on Non-IID Features via Local Batch "
      "Normalization";
  fedbn.formula =
      "client  y = (x, u_i)              u_i: the batch-norm layers, which stay with the client\n"
      "        y ← y − η·g, then (y, u_i) = y\n"
      "up      Δ = y − x                 without u_i\n"
      "server  x ← x + η_g·mean(Δ)";
  fedbn.has_personal_models = true;
  fedbn.has_independent_state = true;
  fedbn.parameters.push_back(
      {.name = "local",
       .default_value = "",
       .help = "globs on tensor names that stay local, \"*.bn* head.*\"; \"\": batch-norm layers"});
  fedbn.check = CheckFedBn;
  fedbn.stays_with_clients = LocalGroup;
  fedbn.schema = [](const Setup& setup) -> absl::StatusOr<Schema> {
    return LocalGroupSchema(setup, LocalGroup(setup));
  };
  fedbn.client = MakeClient<FedBnClient>;
  return fedbn;
}

}  // namespace macaw::algorithms
