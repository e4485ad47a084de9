#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "algorithms/api/algorithm.h"

namespace macaw::algorithms {

// What a server half keeps between rounds, by name. A rule declares its vectors and numbers here,
// so that none can be forgotten when it is saved or resumed. One thread.
class KeptState {
 public:
  // Call both once per name, in the half's constructor. The results stay valid; Load changes them
  // in place.
  VectorView Vector(const std::string& name, FlatVector initial);
  double& Number(const std::string& name, double initial);

  ServerState Save() const;
  // An error names what is missing or has another layout; then nothing is changed.
  absl::Status Load(const ServerState& state);

 private:
  std::map<std::string, FlatVector> vectors_;  // a map, because its nodes do not move
  std::map<std::string, double> numbers_;
};

}  // namespace macaw::algorithms
