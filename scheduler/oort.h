#pragma once

#include <cstdint>
#include <memory>

#include "plan/cohort.h"
#include "scheduler/cohort.h"
#include "scheduler/feedback.h"
#include "scheduler/trainable.h"

namespace macaw::scheduler {

// Oort (Lai, Zhu, Madhyastha and Chowdhury 2021, algorithm 1), with the constants of its published
// code. In round R the score of a client i that was asked before is
//
//   s_i = ((min(U_i, clip) − least) / range + √(0.1 · ln R / L_i)) · (T / t_i)^α   if t_i > T
//
// U_i = n_i · loss_i, of n_i rows with their mean loss; clip: a quantile of the U; least: 0.999
// times the smallest U, range: the largest U less that; L_i: the last round that asked it, by its
// number; t_i: the seconds of its last turn; T: a quantile of the t. Without virtual time, and for
// a client whose t is not known, the last factor is 1. A client that never told a loss has no first
// term.
//
// Of the paper: U_i = n_i · √(mean of squared losses). Clients report the sum of their losses, so
// this is its lower bound n_i · mean loss, the same where all rows have one loss.
//
// Of a round's k clients, ⌊(1 − ε) k⌋ are drawn by their scores from those with at least cut_off
// times the score of the last of as many best ones. The others are new: sample_window times as many
// are drawn uniformly, of these the wanted ones in proportion to 1 / seconds; without virtual time
// uniformly. Where either kind has too few, the other fills up. O(known clients).
//
// `feedback` must outlive the sampler.
std::unique_ptr<CohortSampler> MakeOortSampler(const CohortConfig& config, uint64_t size,
                                               Trainable clients, const Feedback& feedback);

}  // namespace macaw::scheduler
