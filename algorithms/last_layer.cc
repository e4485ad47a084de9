#include "algorithms/last_layer.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "models/spec.h"

namespace macaw::algorithms {
namespace {

using Names = std::set<std::string>;

Names ParametersOf(const ParameterLayout& layout) {
  Names names;
  for (const LayoutEntry& entry : layout.entries())
    if (entry.group == Group::kParameter) names.insert(entry.name);
  return names;
}

// Nothing: only the layout is known.
std::optional<models::ModelSpec> WholeModel(const Setup& setup) {
  if (setup.model.name.empty()) return std::nullopt;
  auto spec = models::BuildSpec(setup.model, setup.layout->dtype());
  return spec.ok() ? std::optional(*std::move(spec)) : std::nullopt;
}

Names LastModuleOf(const LayoutPtr& layout) {
  return ParametersOf(*ParameterGroup::OfLastLayer(layout).layout());
}

Names LastLayerOf(const models::ModelSpec& spec) {
  if (spec.is_script()) return LastModuleOf(spec.layout);
  Names names;
  for (const auto& [first, count] : spec.tensors) {
    if (count > 0) names.clear();
    for (size_t e = first; e < first + count; ++e) names.insert(spec.layout->entries()[e].name);
  }
  return names;
}

}  // namespace

bool LastModuleIsFrozen(const Setup& setup) {
  const std::optional<models::ModelSpec> whole = WholeModel(setup);
  if (!whole.has_value()) return false;
  const Names trained = ParametersOf(*setup.layout);
  return std::ranges::none_of(LastModuleOf(whole->layout),
                              [&](const std::string& name) { return trained.contains(name); });
}

bool TrainsTheLastLayerAlone(const Setup& setup) {
  const std::optional<models::ModelSpec> whole = WholeModel(setup);
  const Names last = whole.has_value() ? LastLayerOf(*whole) : LastModuleOf(setup.layout);
  return std::ranges::all_of(ParametersOf(*setup.layout),
                             [&](const std::string& name) { return last.contains(name); });
}

}  // namespace macaw::algorithms
