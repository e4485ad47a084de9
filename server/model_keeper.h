#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "aggregation/exact_sum.h"
#include "algorithms/api/registry.h"
#include "proto/fleet/messages.h"
#include "server/engine/host.h"

namespace macaw::server {

// Everything of a run that is made of vectors: the server half of the algorithm and the open
// phase's exact sum. One thread (the coordinator's sum strand), so that nothing here needs a lock
// and the engine never waits for arithmetic.
class ModelKeeper {
 public:
  static absl::StatusOr<ModelKeeper> Make(const algorithms::Description& algorithm,
                                          algorithms::Setup setup, FlatVector initial);

  // Starts a phase: nothing added yet, the order's grids, and what goes down to the clients,
  // encoded and named.
  absl::StatusOr<fleet::Blob> Open(const PhaseOrder& order);

  // The largest sums that a part of the open phase can bring.
  absl::StatusOr<uint64_t> MostSumsBytes() const;
  // A part's sums, checked against the open phase; `clients` is how many its records name.
  absl::StatusOr<aggregation::ExactSum> Decode(const fleet::Part& part) const;
  absl::Status Add(aggregation::ExactSum&& sum);

  // Divides and lets the algorithm move the model. True: the algorithm wants another phase.
  absl::StatusOr<bool> Apply(Round round, Phase phase);
  using Numbers = std::vector<std::pair<std::string, double>>;  // by name, in their order
  // Largest |value| of each channel in the applied phases of the round, as a fraction of the
  // channel's bound.
  const Numbers& headroom() const { return headroom_; }
  // The rule's own metrics in the applied phases of the round. A sum adds the phases' values up, of
  // any other the last phase's counts.
  Numbers metrics() const;

  // What is evaluated and written: the rule's Result.
  ConstVectorView Model() const { return algorithm_->Result(); }
  // That alone, encoded and named once however often it is asked for.
  fleet::Blob ModelBlob();
  algorithms::ServerState Save() const { return algorithm_->Save(); }
  absl::Status Load(const algorithms::ServerState& state);
  // Whether clients keep a state between rounds.
  bool stateful() const { return !schema_.state.empty(); }
  // Every layout that a saved vector may have.
  std::vector<LayoutPtr> Layouts() const;

 private:
  ModelKeeper() = default;
  void TakeMetrics(Phase phase, aggregation::Aggregate& aggregate);
  algorithms::ServerContext ContextOf(Round round, Phase phase) {
    return {
        .round = round, .phase = phase, .seed = seed_, .metrics = &metrics_, .schema = &schema_};
  }
  algorithms::Schema schema_;
  LayoutPtr layout_;
  uint64_t seed_ = 0;  // the run's
  std::unique_ptr<algorithms::ServerAlgorithm> algorithm_;
  std::optional<fleet::Blob> model_blob_;  // until the model changes
  std::optional<PhaseOrder> order_;
  std::optional<aggregation::ExactSum> sum_;  // of the open phase; none before its first part
  // Of the round.
  Numbers headroom_;
  std::map<std::string, double> metrics_;
};

}  // namespace macaw::server
