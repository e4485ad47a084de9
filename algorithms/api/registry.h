#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "algorithms/api/algorithm.h"

namespace macaw::algorithms {

struct ParameterSpec {
  std::string name;
  ParameterValue default_value;   // its type is the parameter's type
  std::string help;               // one line, with the unit and the paper's symbol
  std::optional<double> minimum;  // inclusive, for numbers
  std::optional<double> maximum;
  std::vector<std::string> choices;  // for strings
  // What the fields above cannot say, for a text with a form of its own.
  std::function<absl::Status(const ParameterValue&)> check = {};
};

// Everything the system knows of an algorithm. A built-in is one file that ends in a function
// returning this.
struct Description {
  std::string name;
  std::string summary;  // a line for `macaw algorithms`
  std::string paper;    // author, year, title
  std::vector<ParameterSpec> parameters;
  std::string remarks = {};  // what to know before choosing it: `macaw algorithms NAME` shows it

  // Some stage of the rule has hooks (training/api/hooks.h), which only the eager trainer runs:
  // local.trainer = "fused" is refused before the run.
  bool has_hooks = false;
  // EvaluationPoint gives a client a model of its own, so that test accuracy is the clients'.
  bool has_personal_models = false;
  // What a user should know of this very run: sentences for its opening lines. Empty: nothing.
  std::function<std::vector<std::string>(const Setup&)> notes = {};

  // Refuses a run that the rule is not made for, and says why. Empty: every run will do.
  std::function<absl::Status(const Setup&)> check = {};
  std::function<absl::StatusOr<Schema>(const Setup&)> schema;
  std::function<absl::StatusOr<std::unique_ptr<ServerAlgorithm>>(const Setup&, FlatVector model)>
      server;
  std::function<absl::StatusOr<std::unique_ptr<ClientAlgorithm>>(const Setup&)> client;
};

// The schema of a run: what both sides begin with. Refuses, with the reason, a run that the
// algorithm is not made for, one whose trainer cannot carry out its stages, and one that may draw a
// client twice where each client's state or update stands once.
absl::StatusOr<Schema> MakeSchema(const Description& description, const Setup& setup);

// The setup of `run`, whose algorithm's parameters are complete.
Setup SetupOf(const RunConfig& run, LayoutPtr layout);

// For Description::server and client, where the half's constructor takes what these take.
template <typename Half>
absl::StatusOr<std::unique_ptr<ServerAlgorithm>> MakeServer(const Setup& setup, FlatVector model) {
  return std::make_unique<Half>(setup, std::move(model));
}
template <typename Half>
absl::StatusOr<std::unique_ptr<ClientAlgorithm>> MakeClient(const Setup& setup) {
  return std::make_unique<Half>(setup);
}

// Built once in main() and read-only afterwards.
class Registry {
 public:
  absl::Status Add(Description description);  // refuses a name that is taken
  absl::StatusOr<const Description*> Find(
      const std::string& name) const;           // an error lists the nearest names
  std::vector<const Description*> All() const;  // by name

  // Fills in defaults and checks types, ranges and unknown names; errors name
  // `algorithm.NAME.parameter`.
  absl::StatusOr<AlgorithmConfig> Complete(AlgorithmConfig config) const;

 private:
  std::map<std::string, Description> descriptions_;
};

// Every algorithm of this folder. The one place to add a line to.
void RegisterBuiltinAlgorithms(Registry& registry);

}  // namespace macaw::algorithms
