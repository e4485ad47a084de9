#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "aggregation/exact_sum.h"
#include "algorithms/api/algorithm.h"
#include "algorithms/api/description.h"
#include "core/ids.h"
#include "plan/run_plan.h"
#include "proto/fleet/messages.h"
#include "server/client_parts.h"
#include "server/engine/phase.h"

namespace macaw::server {

inline constexpr char kLeaveOneOut[] = "evaluation.leave_one_out";

// The model of a round that one of its clients is left out of.
struct WithoutClient {
  ClientId client{};
  // Of the client in the rule's sum: m·w where the rule weighs, else m. Where it collects, the
  // weight that the client has reported, if the rule asks for it.
  double weight = 0;
  // Of the angle between what the client has sent, under an attack too, and the mean of all
  // clients, over the vectors of the model's tensors; NaN: one of them is zero.
  double cosine = 0;
  fleet::Blob model;  // as Models gives it: what is trained of it
  Digest digest;      // of the model's values, as in summary.json; filled in by the keeper
};

// evaluation.leave_one_out: the models of a round without each of its clients, one after the other
// (Ghorbani and Zou 2019, "Data Shapley": the leave-one-out value of k is the metric of
// all less that of all but k). Sums are integers, so the sum without client k is the one that the
// round would have had, to the bit; the rule's server half takes it from the same state as the
// round's own. So the model is that of a run that gives k up in this round and in no other.
//
//   Open → Compare → Models
//
// One thread, the keeper's. Holds a server half of its own.
class LeaveOneOut {
 public:
  // `schema`: of the algorithm. `every`: evaluation.leave_one_out, above 0.
  static absl::StatusOr<LeaveOneOut> Make(const algorithms::Description& algorithm,
                                          const algorithms::Schema& schema,
                                          const algorithms::Setup& setup, FlatVector initial,
                                          uint32_t every);

  bool Due(Round round) const { return round.value % every_ == 0; }
  // Before the rule prepares a round that is due. `before`: the state of its server half.
  void Open(const PhaseOrder& order, algorithms::ServerState before);
  // Notes where the mean of all points to.
  void Compare(const aggregation::Aggregate& all);
  // By client. `parts`: of the round, each client apart.
  absl::StatusOr<std::vector<WithoutClient>> Models(const ClientParts& parts,
                                                    const algorithms::Schema& schema,
                                                    uint64_t seed);

 private:
  LeaveOneOut() = default;
  double WeightIn(const aggregation::Aggregate& alone) const;
  double CosineToMean(ClientId client, const aggregation::Aggregate& alone) const;

  // The mean over its clients of what an aggregate has on the compared channels, by channel:
  // sums as they were summed, and in collected vectors what is made up. An empty vector: there is
  // none.
  std::vector<FlatVector> DirectionsOf(const aggregation::Aggregate& aggregate) const;

  uint32_t every_ = 1;
  std::vector<aggregation::ChannelSpec> compared_;  // those with the model's tensors
  std::unique_ptr<algorithms::ServerAlgorithm> twin_;
  PhaseOrder order_;
  algorithms::ServerState before_;
  algorithms::MadeUp made_up_;    // what hostile clients of the round have sent
  std::vector<FlatVector> mean_;  // DirectionsOf all, with that
};

// Refuses runs whose rounds cannot be done without one client, or must not tell of one.
absl::Status CheckLeaveOneOut(const RunPlan& run, const algorithms::Description& algorithm,
                              const algorithms::Schema& schema);

}  // namespace macaw::server
