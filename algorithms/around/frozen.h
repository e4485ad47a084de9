#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "algorithms/api/description.h"
#include "algorithms/api/parameter_group.h"

namespace macaw::algorithms {

// [model] frozen: tensors that no client trains and none sends. The rule, its attackers and its
// privacy stand inside: their model has the other tensors alone, so no norm, control variate, state
// or server optimizer can touch a frozen one, and no codec of [broadcast] either. The server half
// has no frozen tensor at all: they are Schema::parts' base, which its carrier sends once. A
// client's stages are of the whole model, with Stage::trainable.
//
// frozen: globs on the names of the model's tensors, of which models::BuildSpec has checked that
// each matches one and that a parameter is left.
Description WithFrozen(Description rule, std::vector<std::string> frozen);

// The whole model in a saved state of 0.1.0, beside what the rule saved of its part as "model".
inline constexpr char kWholeModel[] = "whole_model";

// The client half. `trained`: the tensors that are not frozen; `rule`: the schema of the rule,
// whose model they are.
std::unique_ptr<ClientAlgorithm> MakeFrozenClient(std::unique_ptr<ClientAlgorithm> inner,
                                                  Schema rule, const ParameterGroup& trained,
                                                  LayoutPtr whole);

}  // namespace macaw::algorithms
