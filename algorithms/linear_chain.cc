#include "algorithms/linear_chain.h"

#include <cmath>
#include <variant>

#include "absl/strings/str_cat.h"
#include "algorithms/api/vector_math.h"
#include "core/status.h"
#include "models/spec.h"

namespace macaw::algorithms {

double Activate(Activation activation, double z) {
  switch (activation) {
    case Activation::kNone:
      return z;
    case Activation::kTanh:
      return std::tanh(z);
    case Activation::kSigmoid:
      return 1 / (1 + std::exp(-z));
  }
  return z;
}

double SlopeAt(Activation activation, double h) {
  switch (activation) {
    case Activation::kNone:
      return 1;
    case Activation::kTanh:
      return 1 - h * h;
    case Activation::kSigmoid:
      return h * (1 - h);
  }
  return 1;
}

absl::StatusOr<LinearChain> LinearChain::Of(const Setup& setup, absl::string_view what) {
  const auto refuse = [&](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat(what, ", and ", why...));
  };
  if (setup.model.name.empty()) return refuse("the run does not say which layers its model has");
  MACAW_ASSIGN_OR_RETURN(const models::ModelSpec spec,
                         models::BuildSpec(setup.model, setup.layout->dtype()));
  if (!SameLayout(spec.layout.get(), setup.layout.get()))
    return refuse("model.frozen, trained or adapters leave tensors of the model out");
  if (spec.is_script() || spec.takes_sequences())
    return refuse("the run's model is none of single rows of numbers");
  LinearChain chain;
  bool follows = false;  // a linear layer, directly
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const models::Layer& layer = spec.layers[i];
    if (i == 0 && std::holds_alternative<models::Flatten>(layer)) continue;
    if (const auto* linear = std::get_if<models::Linear>(&layer)) {
      const std::vector<LayoutEntry>& entries = spec.layout->entries();
      const size_t first = spec.tensors[i].first;
      chain.layers.push_back({.inputs = static_cast<size_t>(linear->in),
                              .outputs = static_cast<size_t>(linear->out),
                              .weight = entries[first].offset});
      if (linear->bias) chain.layers.back().bias = entries[first + 1].offset;
      follows = true;
      continue;
    }
    const bool tanh = std::holds_alternative<models::Tanh>(layer);
    if (!follows || (!tanh && !std::holds_alternative<models::Sigmoid>(layer))) {
      return refuse("layer ", i + 1,
                    " of model.layers is none of these: write \"linear K\", and "
                    "\"tanh\" or \"sigmoid\" behind each but the last");
    }
    chain.layers.back().after = tanh ? Activation::kTanh : Activation::kSigmoid;
    follows = false;
  }
  if (chain.layers.empty()) return refuse("the run's model has none");
  return chain;
}

}  // namespace macaw::algorithms
