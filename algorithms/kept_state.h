#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "algorithms/api/algorithm.h"

namespace macaw::algorithms {

// What a server half keeps between rounds, by name: a rule declares its vectors and numbers here
// and then cannot forget one when it is saved or resumed. One thread.
class KeptState {
 public:
  // Both are declared once, by the half's constructor. What they return stays valid and is moved in
  // place by Load.
  VectorView Vector(const std::string& name, FlatVector initial);
  double& Number(const std::string& name, double initial);

  ServerState Save() const;
  // Refuses, unchanged, a state that lacks something or has another layout; errors name it.
  absl::Status Load(const ServerState& state);

 private:
  std::map<std::string, FlatVector> vectors_;  // nodes of a map stay where they are
  std::map<std::string, double> numbers_;
};

}  // namespace macaw::algorithms
