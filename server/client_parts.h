#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "aggregation/exact_sum.h"
#include "algorithms/api/algorithm.h"
#include "algorithms/api/description.h"
#include "core/ids.h"
#include "plan/run_plan.h"
#include "server/engine/phase.h"

namespace macaw::server {

// The sums of a round that some of its clients can be left out of: those of these clients one by
// one, and those of the rest together. Sums are integers, so what is left without a client is the
// sum that the round would have had, to the bit.
//
//   Open → Add (each part once) → Sum, EachWithout
//
// One thread, the keeper's. Holds 8 bytes a weight for each client apart, and as much for the rest.
class ClientParts {
 public:
  void Open(const PhaseOrder& order, std::vector<aggregation::ChannelSpec> channels);
  // `client`, of a part that is `apart`: whose it is. Such a sum is copied, so that nothing is kept
  // of the bytes that it came in.
  absl::Status Add(aggregation::ExactSum&& sum, ClientId client, bool apart);
  void Drop();

  // Of all parts together.
  absl::StatusOr<aggregation::ExactSum> Sum() const;
  // The clients apart, in the order in which they came.
  const std::vector<ClientId>& clients() const { return clients_; }
  bool Has(ClientId client) const;
  // Of the n-th of them, alone.
  absl::StatusOr<aggregation::ExactSum> Alone(size_t n) const;

  // Calls `visit` with the place of each client apart that is `wanted`, and with the sum of all
  // others. Each part is added about log2(parts) times, whatever its channels' reductions.
  using Wanted = absl::FunctionRef<bool(ClientId client)>;
  using Visit = absl::FunctionRef<absl::Status(size_t n, aggregation::ExactSum others)>;
  absl::Status EachWithout(Wanted wanted, Visit visit) const;

 private:
  absl::StatusOr<aggregation::ExactSum> SumOf(size_t begin, size_t end) const;
  absl::StatusOr<aggregation::ExactSum> CopyOf(const aggregation::ExactSum& sum) const;
  absl::Status EachWithout(size_t begin, size_t end, aggregation::ExactSum others, Wanted wanted,
                           Visit visit) const;

  aggregation::GridOrder grid_;
  std::vector<aggregation::ChannelSpec> channels_;
  std::vector<ClientId> clients_;
  std::vector<aggregation::ExactSum> sums_;    // parallel to it
  std::optional<aggregation::ExactSum> rest_;  // of the others; none before the first
};

// Lets a server half do the round of `order` with this sum, from the state that it has.
// `key`: for whose sake, in messages; `client`: whom the sum lacks.
absl::Status ApplyWithout(algorithms::ServerAlgorithm& half, const PhaseOrder& order,
                          aggregation::ExactSum others, const algorithms::Schema& schema,
                          uint64_t seed, absl::string_view key, ClientId client);

// Whether something travels in a phase behind the first. What travels in all phases says nothing.
bool HasLaterPhases(const algorithms::Schema& schema);
// The error of a rule whose rounds have several phases. `whose`: "algorithm mime".
absl::Status CannotLeaveOutOfPhases(absl::string_view key, absl::string_view whose);

// Refuses runs whose rounds cannot be done without one client, or must not tell of one. `key`: that
// asks for it.
absl::Status CheckLeavesClientsOut(absl::string_view key, const RunPlan& run,
                                   const algorithms::Description& algorithm,
                                   const algorithms::Schema& schema);

}  // namespace macaw::server
