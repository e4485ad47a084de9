#include "algorithms/linear_layer.h"

#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "algorithms/api/vector_math.h"
#include "core/status.h"
#include "models/spec.h"

namespace macaw::algorithms {

absl::StatusOr<LinearLayer> LinearLayer::Of(const Setup& setup, absl::string_view what) {
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, ", and ", why,
        ": set model.layers = [\"linear K\"], or [\"flatten\", \"linear K\"] for images, "
        "with K outputs"));
  };
  if (setup.task == TaskKind::kReconstruction)
    return refuse("run.task = \"reconstruction\" is of models that return their inputs");
  if (!setup.model.name.empty()) {
    MACAW_ASSIGN_OR_RETURN(const models::ModelSpec spec,
                           models::BuildSpec(setup.model, setup.layout->dtype()));
    if (!SameLayout(spec.layout.get(), setup.layout.get()))
      return refuse("model.frozen, trained or adapters leave tensors of the model out");
    const bool flattens =
        spec.layers.size() == 2 && std::holds_alternative<models::Flatten>(spec.layers[0]);
    if ((spec.layers.size() != 1 && !flattens) ||
        !std::holds_alternative<models::Linear>(spec.layers.back()) || spec.takes_sequences())
      return refuse("the run's model is another one");
  }
  const std::vector<LayoutEntry>& entries = setup.layout->entries();
  const bool bias = entries.size() == 2 && entries[1].shape.size() == 1;
  if (entries.empty() || entries.size() > 2 || entries[0].shape.size() != 2 ||
      (entries.size() == 2 && !bias))
    return refuse("the run's model has other tensors");
  return LinearLayer{.inputs = static_cast<size_t>(entries[0].shape[1]),
                     .outputs = static_cast<size_t>(entries[0].shape[0]),
                     .bias = bias};
}

}  // namespace macaw::algorithms
