#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "aggregation/exact_sum.h"
#include "algorithms/api/algorithm.h"
#include "algorithms/api/description.h"
#include "core/ids.h"
#include "plan/run_plan.h"
#include "proto/fleet/messages.h"
#include "server/engine/phase.h"

namespace macaw::server {

// The model of a round that one of its clients is left out of.
struct WithoutClient {
  ClientId client{};
  double weight = 0;  // Σ m·w of the client
  // Of the angle between what the client has sent and the mean of all clients, over the vectors of
  // the model's tensors; NaN: one of them is zero.
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
//   Open → Add (each client once) → Sum → Compare → Models
//
// One thread, the keeper's. Holds the round's parts (8 bytes a weight and client) until Models, and
// a server half of its own.
class LeaveOneOut {
 public:
  // `schema`: of the algorithm. `every`: evaluation.leave_one_out, above 0.
  static absl::StatusOr<LeaveOneOut> Make(const algorithms::Description& algorithm,
                                          const algorithms::Schema& schema,
                                          const algorithms::Setup& setup, FlatVector initial,
                                          uint32_t every);

  bool Due(Round round) const { return round.value % every_ == 0; }
  // Before the rule prepares a round that is due. `before`: the state of its server half.
  void Open(const PhaseOrder& order, std::vector<aggregation::ChannelSpec> channels,
            algorithms::ServerState before);
  // Copies the sum: it keeps nothing of the bytes that it came in.
  absl::Status Add(ClientId client, aggregation::ExactSum&& sum);
  void Drop() {
    clients_.clear();
    sums_.clear();
  }
  // All of the round's parts together.
  absl::StatusOr<aggregation::ExactSum> Sum() const;
  // Notes where the mean of all points to.
  void Compare(const aggregation::Aggregate& all);
  // By client. The parts are gone afterwards.
  absl::StatusOr<std::vector<WithoutClient>> Models(const algorithms::Schema& schema,
                                                    uint64_t seed);

 private:
  LeaveOneOut() = default;
  absl::StatusOr<aggregation::ExactSum> SumOf(std::span<const aggregation::ExactSum> sums) const;
  // Calls Without for each part in [begin, end). `others`: the sum of those outside. Each part is
  // added about log2(parts) times, whatever its channels' reductions.
  absl::Status EachWithout(size_t begin, size_t end, aggregation::ExactSum others,
                           const algorithms::Schema& schema, uint64_t seed,
                           std::vector<WithoutClient>& models);
  absl::StatusOr<WithoutClient> Without(size_t left_out, aggregation::ExactSum others,
                                        const algorithms::Schema& schema, uint64_t seed);
  absl::StatusOr<double> CosineToMean(size_t part, const algorithms::Schema& schema) const;

  // The mean over its clients of what an aggregate has on the compared channels, by channel; an
  // empty vector: there is none.
  std::vector<FlatVector> DirectionsOf(const aggregation::Aggregate& aggregate) const;

  uint32_t every_ = 1;
  std::vector<aggregation::ChannelSpec> compared_;  // those with the model's tensors
  std::unique_ptr<algorithms::ServerAlgorithm> twin_;
  PhaseOrder order_;
  std::vector<aggregation::ChannelSpec> channels_;
  algorithms::ServerState before_;
  std::vector<ClientId> clients_;  // of the parts, in the order in which they came
  std::vector<aggregation::ExactSum> sums_;
  std::vector<FlatVector> mean_;  // DirectionsOf all
};

// The error of a rule whose rounds have several phases. `whose`: "algorithm mime".
absl::Status CannotLeaveOutOfPhases(absl::string_view whose);

// Refuses runs whose rounds cannot be done without one client, or must not tell of one.
absl::Status CheckLeaveOneOut(const RunPlan& run, const algorithms::Description& algorithm,
                              const algorithms::Schema& schema);

}  // namespace macaw::server
