#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "algorithms/api/algorithm.h"
#include "algorithms/around/registry.h"
#include "plan/local_steps.h"
#include "sdk/rules/crew.h"

namespace macaw::sdk::rules {

// What a rule's schema() says.
struct RuleSchema {
  LayoutPtr model;  // its places share it with the run; each other place has a layout of its own
  algorithms::Schema travels;
  // What the server half keeps: first the channels down, in their order.
  std::vector<algorithms::NamedLayout> server;
  std::map<std::string, double> numbers;

  bool OfModel(const LayoutPtr& layout) const { return layout == model; }
};

// What the file says of one rule (Interpreter::rules).
struct Rule {
  std::string name;
  double seconds = 0;  // the longest call
  // What it overrides.
  bool proceeds = false, personal = false, begins = false, forgets = false, passes = false;
  std::shared_ptr<Interpreter> interpreter;
};

// A half's processes, and what the rule says of the run. An error is one of the rule's code.
struct Opened {
  std::unique_ptr<Crew> crew;
  RuleSchema schema;
  RowsOfTurn passes;     // empty: the rule does not say it
  absl::Status refused;  // why the rule is not made for this run; OK: it is
};
absl::StatusOr<Opened> Open(const Rule& rule, const algorithms::Setup& setup);

// A parameter as the file describes it.
absl::StatusOr<algorithms::ParameterSpec> ParameterOf(const Json& described);

}  // namespace macaw::sdk::rules
