#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "plan/cohort.h"
#include "scheduler/cohort.h"
#include "scheduler/feedback.h"
#include "scheduler/trainable.h"

// Cohorts of clients with large losses. `feedback` must outlive the samplers.
namespace macaw::scheduler {

// Power of choice (Cho, Wang and Joshi 2022), π_rpow-d: d candidates are drawn without replacement
// in proportion to their rows; the `size` of them with the largest losses train, and of equal ones
// any, drawn at random. A loss is the one that the client told last, and infinite before it
// told any. (π_pow-d asks the candidates for their losses under the current model, which is a round
// trip of its own.) Memory: 8 bytes a client. `rows`: those of `clients`. An error names the key.
absl::StatusOr<std::unique_ptr<CohortSampler>> MakePowerOfChoice(const CohortConfig& config,
                                                                 uint64_t size,
                                                                 std::span<const uint32_t> rows,
                                                                 const Feedback& feedback);

// UCB-CS (Cho, Gupta, Joshi and Yağan 2020): the `size` clients with the largest
//
//   A_i = p_i · (L_i / N_i + √(2 σ² · ln T / N_i))
//
// p_i: the client's share of the rows; N_i = Σ γ^age over the rounds that asked it, L_i = Σ γ^age ·
// loss over those, T = Σ γ^age over all rounds. Clients that were never asked come first, in random
// order; of equal ones those with the smaller ids. A round in which the client was left out counts
// in N_i with a loss of 0. σ: the deviation of the losses that a round's clients tell; the paper's
// is of a client's losses over its local steps, which clients do not tell.
std::unique_ptr<CohortSampler> MakeUpperBound(const CohortConfig& config, uint64_t size,
                                              Trainable clients, const Feedback& feedback);

}  // namespace macaw::scheduler
