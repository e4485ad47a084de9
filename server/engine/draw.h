#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/digest.h"
#include "plan/run_plan.h"
#include "scheduler/cohort.h"
#include "scheduler/feedback.h"
#include "server/engine/client_states.h"
#include "server/engine/phase.h"
#include "server/engine/roster.h"
#include "virtual_time/presence.h"

namespace macaw::server {

// Draws the clients that train in each round, with what the engine needs to know of each. Depends
// only on the configuration, the roster, the clients that are present (Among), what rounds told of
// their clients where the sampling learns and, for Seat::state, the current client states.
class Draw {
 public:
  // Call it after Roster::Begin. `run` and `roster` must outlive the result. An error names the key
  // of [cohort] to change.
  // `presence`: of a run with [devices], or null; it must outlive the result, too. `joins`: whether
  // the model's batches are joined (EpochBatches::Of).
  static absl::StatusOr<Draw> Make(const RunPlan& run, const Roster& roster,
                                   const virtual_time::Presence* presence = nullptr,
                                   bool joins = false);

  // Whether Among may be called: whether the sampler's promise holds for changing populations.
  absl::Status CheckCanChange() const;
  // From now on, draws from those of `present` that are eligible. `present`: ranges of client
  // numbers, as in log::RoundOpened; empty: everybody.
  absl::Status Among(std::vector<ClientId> present);
  const std::vector<ClientId>& present() const { return present_; }
  // Whether the client is among those that are drawn from now.
  bool MayBeDrawnNow(ClientId client) const;
  // The number of clients in these ranges that can be drawn, and how many there must be.
  uint64_t Drawable(const std::vector<ClientId>& present) const;
  uint64_t needed() const;

  // The training rows of each client, 0 for one that cannot be drawn even if it is present.
  const std::vector<uint32_t>& drawable_rows() const {
    return everybody_.rows.empty() ? roster_->rows() : everybody_.rows;
  }

  // The seats, by client id. Clients that the run's straggler policy drops are not among them.
  absl::StatusOr<std::vector<Seat>> Seats(scheduler::Moment moment,
                                          const ClientStates& states) const;
  // The seat of a client that does this work, its part of [local].
  absl::StatusOr<Seat> SeatOf(const scheduler::CohortEntry& entry, const LocalConfig& work,
                              const ClientStates& states) const;
  // The clients of a round, or those that begin together where rounds do not wait for each other.
  const scheduler::CohortSampler& sampler() const { return *pool().sampler; }
  // The memory of a sampling that learns from rounds; null: it does not.
  scheduler::Feedback* feedback() { return feedback_.get(); }

  // A sentence about the clients whose weights cohort.max_weight bounds; empty if there are none.
  std::string BoundedWeights() const;
  // Digest of the clients that can be drawn and of their rows.
  const Digest& eligible() const { return pool().digest; }

 private:
  // Clients to draw from.
  struct Pool {
    // By client, 0: cannot be drawn (not eligible, or too few for a step, plan/local_steps.h);
    // empty: those of the roster.
    std::vector<uint32_t> rows;
    std::unique_ptr<scheduler::CohortSampler> sampler;  // refers to the rows
    Digest digest;
  };
  Draw(const RunPlan& run, const Roster& roster, const virtual_time::Presence* presence, bool joins,
       std::unique_ptr<scheduler::Feedback> feedback, Pool everybody)
      : run_(&run),
        roster_(&roster),
        presence_(presence),
        joins_(joins),
        feedback_(std::move(feedback)),
        everybody_(std::move(everybody)) {}
  static absl::StatusOr<Pool> PoolOf(const RunPlan& run, const Roster& roster,
                                     const virtual_time::Presence* presence,
                                     const scheduler::Feedback* feedback,
                                     std::vector<uint32_t> rows);
  const Pool& pool() const { return some_.has_value() ? *some_ : everybody_; }
  // The examples or tokens that give the client its weight.
  uint64_t OwnWeight(ClientId client) const;
  double WeightOf(ClientId client) const;

  const RunPlan* run_;
  const Roster* roster_;
  const virtual_time::Presence* presence_;
  bool joins_;
  std::unique_ptr<scheduler::Feedback> feedback_;  // the samplers refer to it
  Pool everybody_;
  std::optional<Pool> some_;  // while only some are present
  std::vector<ClientId> present_;
};

}  // namespace macaw::server
