#pragma once

#include "algorithms/api/algorithm.h"

namespace macaw::algorithms {

// What a run trains of the end of its model. A rule's own layout lacks frozen tensors ([model]
// frozen), so that its last tensors need not be the model's.

// Whether no parameter of the model's last module (ParameterGroup::OfLastLayer) is trained.
bool LastModuleIsFrozen(const Setup& setup);
// Whether no parameter is trained below the model's last layer that has any. A layer is one of
// [model] layers; of another model, or where only a layout is known, a module.
bool TrainsTheLastLayerAlone(const Setup& setup);

}  // namespace macaw::algorithms
