#include "algorithms/around/frozen.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "algorithms/around/guard.h"
#include "core/status.h"

namespace macaw::algorithms {
namespace {

// The tensors that are trained, and the setup of a rule whose model has no others.
struct Inside {
  ModelParts parts;
  Setup setup;

  Inside(const Setup& outside, const std::vector<std::string>& frozen)
      : parts(outside.layout, ParameterGroup::Matching(outside.layout, frozen)), setup(outside) {
    setup.layout = parts.trained.layout();
  }
};

// The same function of the rule's own setup.
template <typename F>
F OfTheInside(F function, const std::vector<std::string>& frozen) {
  if (!function) return function;
  return [function = std::move(function), frozen](const Setup& setup) {
    return function(Inside(setup, frozen).setup);
  };
}

absl::StatusOr<Schema> RuleSchema(const Description& rule, const Setup& setup) {
  MACAW_ASSIGN_OR_RETURN(Schema schema, rule.schema(setup));
  schema.whose = WhoseOf(rule);
  return schema;
}

}  // namespace

Description WithFrozen(Description rule, std::vector<std::string> frozen) {
  Description result = rule;
  result.check = [rule, inside = OfTheInside(rule.check, frozen)](const Setup& setup) {
    if (!rule.has_several_models) return inside ? inside(setup) : absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("model.frozen, trained and adapters: the server of ", rule.name,
                     " has several models, and frozen tensors are put back into one: remove "
                     "the keys"));
  };
  result.notes = OfTheInside(rule.notes, frozen);
  result.totals = OfTheInside(rule.totals, frozen);
  result.withstands = OfTheInside(rule.withstands, frozen);
  result.trusts = OfTheInside(rule.trusts, frozen);
  result.needs = OfTheInside(rule.needs, frozen);
  result.schema = [rule, frozen](const Setup& setup) -> absl::StatusOr<Schema> {
    const Inside inside(setup, frozen);
    MACAW_ASSIGN_OR_RETURN(Schema schema, RuleSchema(rule, inside.setup));
    if (schema.down.empty()) return schema;  // CheckSchema refuses it
    schema.down[0].layout = setup.layout;
    schema.parts = std::make_shared<const ModelParts>(inside.parts);
    schema.saved.push_back(setup.layout);  // of 0.1.0, with the frozen tensors
    return schema;
  };
  result.client = [rule,
                   frozen](const Setup& setup) -> absl::StatusOr<std::unique_ptr<ClientAlgorithm>> {
    const Inside inside(setup, frozen);
    MACAW_ASSIGN_OR_RETURN(Schema schema, RuleSchema(rule, inside.setup));
    MACAW_ASSIGN_OR_RETURN(std::unique_ptr<ClientAlgorithm> inner, rule.client(inside.setup));
    return MakeFrozenClient(std::move(inner), std::move(schema), inside.parts.trained,
                            setup.layout);
  };
  result.server = [rule, frozen](
                      const Setup& setup,
                      FlatVector model) -> absl::StatusOr<std::unique_ptr<ServerAlgorithm>> {
    const Inside inside(setup, frozen);
    FlatVector part(inside.setup.layout);
    inside.parts.trained.Extract(model.view(), part.view());
    return rule.server(inside.setup, std::move(part));
  };
  return result;
}

}  // namespace macaw::algorithms
