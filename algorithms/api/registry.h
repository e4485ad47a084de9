#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
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
};

// Everything the system knows of an algorithm. A built-in is one file that ends in a function
// returning this.
struct Description {
  std::string name;
  std::string summary;  // a line for `macaw algorithms`
  std::string paper;    // author, year, title
  std::vector<ParameterSpec> parameters;

  std::function<absl::StatusOr<Schema>(const Setup&)> schema;
  std::function<absl::StatusOr<std::unique_ptr<ServerAlgorithm>>(const Setup&, FlatVector model)>
      server;
  std::function<absl::StatusOr<std::unique_ptr<ClientAlgorithm>>(const Setup&)> client;
};

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
